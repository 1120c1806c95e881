"""ptxas starts while LLVM works, and has ended when its kernel is made or refused."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

import pytest

from kernelpack.backends.cuda.assemble import ptx_to_cubin
from kernelpack.backends.cuda.assemble.ptxas import Ptxas
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.errors import CompilationError
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cuda import test_objects
from tests.backends.cuda.test_assemblers import ELF, GOOD, add


class Watched(Ptxas):
    """Runs of ptxas that a test can look at."""

    runs: ClassVar[list[Watched]] = []

    def __init__(self, program: Path, arch: str, *more: str) -> None:
        super().__init__(program, arch, *more)
        self.runs.append(self)

    @property
    def running(self) -> bool:
        return self._process.returncode is None and Path(self._folder.name).exists()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    monkeypatch.setattr(ptx_to_cubin, "Ptxas", Watched)
    monkeypatch.setattr(Watched, "runs", [])
    return Watched.runs


@pytest.fixture
def lowered() -> CudaContext:
    return CudaContext(Target.parse("cuda:sm_90a"), Options(), "kernel")


def test_it_starts_ahead_of_its_ptx(runs: list[Watched], lowered: CudaContext) -> None:
    def emit(llir: str, lowered: CudaContext) -> str:
        assert [run.running for run in runs] == [True]
        return GOOD

    ptx = ptx_to_cubin.while_ptxas_starts(emit)("", lowered)
    assert ptx_to_cubin.ptx_to_cubin(ptx, lowered).startswith(ELF)
    assert [run.running for run in runs] == [False]


def test_a_kernel_takes_one_run(runs: list[Watched]) -> None:
    assert add().compile("cuda:sm_90a").metadata["assembler"] == runs[0].name
    assert [run.running for run in runs] == [False]


def test_it_ends_where_llvm_refuses_the_code(runs: list[Watched], lowered: CudaContext) -> None:
    def refuse(llir: str, lowered: CudaContext) -> str:
        raise CompilationError("no")

    with pytest.raises(CompilationError):
        ptx_to_cubin.while_ptxas_starts(refuse)("", lowered)
    assert [run.running for run in runs] == [False]


def test_it_ends_unused_where_objects_are_linked(runs: list[Watched]) -> None:
    test_objects.launch(test_objects.once).compile("cuda:sm_90a")
    assert len(runs) >= 2
    assert not any(run.running for run in runs)


def test_a_forked_process_does_not_keep_it_waiting(runs: list[Watched], lowered: CudaContext) -> None:
    """As the workers of torch's DataLoader would, which live long: ptxas reads until nobody has the pipe open."""
    children = []

    def emit(llir: str, lowered: CudaContext) -> str:
        children.append(os.fork())
        if children[0] == 0:
            time.sleep(30)
            os._exit(0)
        return GOOD

    ptx = ptx_to_cubin.while_ptxas_starts(emit)("", lowered)
    assert ptx_to_cubin.ptx_to_cubin(ptx, lowered).startswith(ELF)
    ended, _ = os.waitpid(children[0], os.WNOHANG)
    assert not ended, "ptxas waited for it"
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
