"""AOTInductor packages that bring their op libraries along, and load them by themselves from Python and C++."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.errors import BuildError
from kernelpack.opgen.load import library_file

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_MODEL = "data/aotinductor/model"
"""Where a package has the files of its model. Whoever loads it unpacks them into one folder."""


def aoti_package(
    program: ExportedProgram,
    path: Path | str,
    *,
    libraries: Sequence[Path | str],
    inductor_configs: Mapping[str, Any] | None = None,
) -> Path:
    """Compiles an exported program by torch._inductor.aoti_compile_and_package into `path`, a .pt2 file, which it returns.

    The package holds the op libraries, named by their folders or files, and its model is linked to them: who runs it needs torch alone, and
    loads nothing before. A library that the process has already is not loaded again. Raises BuildError.
    """
    import torch._inductor  # late: it takes a second, and only this needs it

    file = Path(path)
    if file.suffix != ".pt2":
        raise BuildError(f"{file} is no name of an AOTInductor package", cure=f"write {file.with_suffix('.pt2')}")
    linked = [library_file(Path(library).resolve()) for library in libraries]
    named: dict[str, Path] = {}
    for library in linked:
        if named.setdefault(library.name, library) != library:
            raise BuildError(
                f"{library} and {named[library.name]} have one name", cure="build one of them with another --namespace"
            )
    configs = dict(inductor_configs or {})
    others = configs.get("aot_inductor.custom_op_libs") or []
    configs["aot_inductor.custom_op_libs"] = [*others, *map(_link, named.values())]
    with tempfile.TemporaryDirectory(dir=file.resolve().parent) as folder:
        made, complete = Path(folder, file.name), Path(folder, "complete.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=str(made), inductor_configs=configs)
        _add(made, complete, tuple(named.values()))
        os.replace(complete, file)
    return file


def _link(library: Path) -> str:
    """Returns what inductor writes after `-l`: any library, then this one, needed though no symbol of it is, and found beside the model."""
    folder, name = shlex.quote(str(library.parent)), shlex.quote(library.name)
    return f"c -Wl,--push-state,--no-as-needed,-rpath,'$ORIGIN' -L{folder} -l:{name} -Wl,--pop-state"


def _add(package: Path, complete: Path, libraries: Sequence[Path]) -> None:
    """Writes a package once more, with op libraries before the model: a torch that takes the last .so of a package for the model finds
    it."""
    with zipfile.ZipFile(package) as source, zipfile.ZipFile(complete, "w") as target:
        root = source.infolist()[0].filename.partition("/")[0]
        for library in libraries:
            target.writestr(zipfile.ZipInfo(f"{root}/{_MODEL}/{library.name}"), library.read_bytes())
        for entry in source.infolist():
            with source.open(entry) as read, target.open(zipfile.ZipInfo(entry.filename), "w", force_zip64=True) as write:
                shutil.copyfileobj(read, write)
