"""A run of ptxas that may start before its PTX is there: until it reads it takes 10 ms, as LLVM does for a small kernel."""

from __future__ import annotations

import os
import subprocess
import tempfile
import weakref
from pathlib import Path

from kernelpack.backends.cuda.assemble.toolchain import no_ptxas, ptxas_name, ptxas_options
from kernelpack.errors import BuildError


class Ptxas:
    """A ptxas that runs and waits for its PTX. Left as a context it has ended, whatever came of it."""

    def __init__(self, program: Path, arch: str, *more: str) -> None:
        self.program = program
        self.name = ptxas_name(program)
        self._folder = tempfile.TemporaryDirectory(prefix="kernelpack-")
        # What is "-" to ptxas it reads before anything else. The cubin's name is relative: where it is made must not show in it.
        files = ["/dev/stdin", "-o", "kernel.cubin"]
        self._process = subprocess.Popen(
            [str(program), f"-arch={arch}", "-O3", "-v", "-lineinfo", *more, *ptxas_options(), *files],
            cwd=self._folder.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        _RUNNING.add(self)

    def assemble(self, ptx: str) -> tuple[bytes | None, str]:
        """Returns the cubin, None where ptxas refuses the PTX, and what it reports. Raises BuildError where it does neither."""
        log, _ = self._process.communicate(ptx)
        if self._process.returncode:
            return None, log
        try:
            return Path(self._folder.name, "kernel.cubin").read_bytes(), log
        except FileNotFoundError:
            raise BuildError(
                f"{self.program} was given PTX and made no cubin: {log.strip()}", cure=no_ptxas(self.program)
            ) from None

    def let_go(self) -> None:
        """Closes the end of the pipe that a forked process has, too: ptxas reads until nobody can write."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def __enter__(self) -> Ptxas:
        return self

    def __exit__(self, *problem: object) -> None:
        with self._folder, self._process:
            self._process.kill()  # unless it has ended


_RUNNING: weakref.WeakSet[Ptxas] = weakref.WeakSet()


def _forked() -> None:
    for running in list(_RUNNING):
        running.let_go()


os.register_at_fork(after_in_child=_forked)
