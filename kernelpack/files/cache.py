"""CacheFolder: where kernelpack keeps what it made. Nothing is read from it that somebody else can have written."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from kernelpack.errors import UntrustedFileError
from kernelpack.files.trust import admitted, own_file, own_folder
from kernelpack.files.whole import is_partial, make_folder, write_whole
from kernelpack.knobs.environment import expanded


class CacheFolder:
    """A folder of files with names such as `packs/ab/abcd.kpack`. It need not exist."""

    def __init__(self, root: Path | str) -> None:
        self.root = expanded(str(root))

    def names(self) -> list[str]:
        """Returns the names of all files, in order."""
        paths = (os.path.join(folder, file) for folder, _, files in os.walk(self.root) for file in files)
        names = (os.path.relpath(path, self.root) for path in paths if not is_partial(path))
        return sorted(name for name in names if name.isprintable())

    def find(self, name: str) -> Path | None:
        """Returns where a file can be read, None where there is none, or none that can be reached. Raises UntrustedFileError for one that
        others can have written and no lock lists, and BuildError for a bad lock."""
        try:
            return admitted(self.root, name)
        except OSError:
            return None
        except UntrustedFileError:
            if not os.path.lexists(os.path.join(self.root, name)):
                return None
            raise

    def make(self) -> None:
        """Makes the folder if there is none. Raises OSError, and UntrustedFileError for one that others can change."""
        make_folder(Path(self.root), mode=0o755)
        own_folder(self.root)

    def write(self, name: str, data: bytes) -> Path:
        """Keeps a file, and returns its real path. Raises OSError, and UntrustedFileError where others could replace it."""
        self.make()
        write_whole(Path(self.root) / name, data, shared=False)
        return own_file(self.root, name)

    def read(self, name: str) -> bytes | None:
        """Returns what a file holds; None where there is none that can be read. For one that others can have written, it warns. Raises
        BuildError for a bad lock."""
        try:
            path = self.find(name)
            return None if path is None else path.read_bytes()
        except UntrustedFileError as problem:
            go_without(problem)
        except OSError:
            pass
        return None

    def keep(self, name: str, data: bytes) -> None:
        """Keeps a file where that can be done: whoever finds none makes it again. Where others could replace it, it warns."""
        try:
            self.write(name, data)
        except UntrustedFileError as problem:
            go_without(problem)
        except OSError:
            pass


_TOLD: set[str] = set()


def go_without(problem: UntrustedFileError) -> None:
    """Warns that a cache is not used, once a process for each problem: what it would have given is compiled."""
    if problem.message not in _TOLD:
        _TOLD.add(problem.message)
        warnings.warn(f"the cache is not used: {problem}", RuntimeWarning, stacklevel=3)
