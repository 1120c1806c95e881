"""A module of kernels, as a package that knows nothing of adopting has it, and a recorded run of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelpack import as_triton
from kernelpack.adopt import build, kernels
from kernelpack.adopt.build import Adopted
from kernelpack.backends.cpu.facts.features import native_target
from kernelpack.kernel.jit import KNOWN
from kernelpack.knobs import TRACE
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.runtime import compile, launcher, packs, record
from kernelpack.target import Target

COMPILE = compile.compile_kernel
NAME = "kernels_of_others"
SOURCE = """
import kernelpack as kp
import kernelpack.language as tl
from kernelpack.runtime.autotune import Autotuner

ONE = tl.constexpr(1)

@kp.jit
def add(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + ONE, mask=i < n)

@kp.autotune([kp.Config({"B": 64}), kp.Config({"B": 128})], key=["n"])
@kp.jit
def tuned(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

class Own(Autotuner):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.found = {}

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        n = args[2].bit_length()
        if n not in self.found:
            times = {config: self._bench(*args, config=config, **kwargs) for config in self.prune_configs(kwargs)}
            self.found[n] = min(times, key=times.get)
        self.best_config = self.found[n]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())

def own(fn):
    return Own(fn, fn.arg_names, [kp.Config({"B": 64}), kp.Config({"B": 128})], ["n"], None, None)

@own
@kp.jit
def tuned_by_its_own(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

@kp.jit
def refused(x, out):
    tl.store(out, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x)], dtype=tl.int32, is_pure=True, pack=1))
"""


class Recorded:
    """A module of kernels in a folder, and the record of its launches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "record"
        (folder / f"{NAME}.py").write_text(SOURCE)
        self.module = self.again()

    def again(self, change: Callable[[str], str] = str) -> ModuleType:
        """Imports the module anew, as another process does, with its text changed."""
        path = self.folder / f"{NAME}.py"
        path.write_text(change(path.read_text()))
        for known in [name for name in KNOWN if name.startswith(f"{NAME}:")]:
            del KNOWN[known]
        sys.modules.pop(NAME, None)
        kernels._kept.clear()
        kernels._imported.cache_clear()
        record._written.clear()
        importlib.invalidate_caches()
        self.module = importlib.import_module(NAME)
        return self.module

    def adopt(self, out: Path | None = None, target: Target | None = None) -> Adopted:
        return build.adopt([self.file], targets=[target or native_target()], out=out or self.folder / "packs", jobs=1)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """A run that launched `add`, whose launches are recorded while `KERNELPACK_TRACE` is set."""
    stood_in = as_triton.installed()
    monkeypatch.setenv("KERNELPACK_CACHE", "0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(packs, "_packs", packs._Packs())
    monkeypatch.setattr(launcher, "_RECORDED", True)
    monkeypatch.setenv(TRACE.name, str(tmp_path / "record"))
    WATCHERS.append(TRACE)
    try:
        found = Recorded(tmp_path)
        x = torch.arange(100.0)
        found.module.add[(1,)](x, torch.empty_like(x), 100, B=128)
        yield found
    finally:
        WATCHERS.remove(TRACE)
        sys.modules.pop(NAME, None)
        if not stood_in:  # adopting does it
            as_triton.uninstall()


@pytest.fixture
def serving(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The run adopted into the folder `packs`, and a process that compiles nothing and takes kernels from there."""
    recorded.adopt()
    recorded.again()
    monkeypatch.setenv("KERNELPACK_PACKS", str(recorded.folder / "packs"))
    monkeypatch.setenv("KERNELPACK_MISS", "error")
    monkeypatch.delenv(TRACE.name)
    monkeypatch.setattr(launcher, "_RECORDED", False)
    monkeypatch.setattr(compile, "compile_kernel", lambda *_: pytest.fail("it compiled"))
    return recorded
