"""tl.extra.cuda: dependent launches wait where they can overlap, and run everywhere else; kernels know how many warps they have."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.installed import backends
from kernelpack.errors import CompilationError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.options import Options
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.specialization import specialize
from kernelpack.simt.compile import compile_program
from kernelpack.target import Target
from tests.frontend.compiling import run


@kp.jit
def double(x, out, N: tl.constexpr):
    place = tl.arange(0, N)
    early = tl.load(x + place)
    tl.extra.cuda.gdc_wait()
    late = tl.load(x + place)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out + place, early + late)


def test_the_interpreter_and_cpus_have_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = torch.randn(32)
    for launch in ("interpreter", "cpu"):
        out = torch.zeros(32)
        if launch == "interpreter":
            run(double, 1, x=x, out=out, N=32)
        elif importlib.util.find_spec("kernelpack._C") is not None:
            monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
            double[(1,)](x, out, N=32, launch_pdl=True)
        else:
            continue
        torch.testing.assert_close(out, 2 * x)


def ptx(target: str) -> list[str]:
    """Returns what the kernel does to global memory, and when it waits."""
    x = torch.zeros(32)
    special, _ = specialize(double, {"x": x, "out": x, "N": 32}, backends()["cuda"])
    kernel = compile_kernel(double, special, Target.parse(target), Options(num_warps=1, launch_pdl=True))
    words = [line.split()[0].rstrip(";") for line in kernel.stages["ptx"].splitlines() if line.startswith("\t")]
    return [word for word in words if word.startswith(("griddepcontrol", "ld.global", "st.global"))]


def test_nothing_is_loaded_early_or_stored_late() -> None:
    assert ptx("cuda:sm_90a") == [
        "ld.global.b32",
        "griddepcontrol.wait",
        "ld.global.b32",
        "griddepcontrol.launch_dependents",
        "st.global.b32",
    ]


def test_older_gpus_have_no_dependent_launches() -> None:
    assert "griddepcontrol.wait" not in ptx("cuda:sm_80")


@kp.jit
def warps_here():
    return tl.extra.cuda.num_warps()


@kp.jit
def number(out):
    threads: tl.constexpr = tl.extra.cuda.num_threads()
    i = tl.arange(0, threads)
    tl.store(out + i, i + warps_here())


@pytest.mark.parametrize("num_warps", [2, 4])
def test_kernels_know_how_many_warps_they_have(num_warps: int) -> None:
    out = torch.zeros(32 * num_warps, dtype=torch.int32)
    special, values = specialize(number, {"out": out}, backends()["cuda"])
    compile_program(number, special, Target.parse("cuda:sm_80"), Options(num_warps=num_warps)).run((1,), values)
    assert torch.equal(out, torch.arange(32 * num_warps, dtype=torch.int32) + num_warps)


def test_kernels_of_ops_are_told_to_take_it_as_a_parameter() -> None:
    special, _ = specialize(number, {"out": torch.zeros(1)}, backends()["cuda"])
    with pytest.raises(CompilationError, match="chosen for each target") as raised:
        ast_to_ttir(number, dict(special.signature), dict(special.constexprs), special.facts, any_warps=True)
    assert "constexpr parameter" in str(raised.value.cure)


@kp.jit
def rounded(x, out, N: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(out + place, tl.extra.cuda.libdevice.round(tl.load(x + place)))


def test_libdevice_is_found_where_cuda_has_it() -> None:
    x, out = torch.tensor([0.5, 1.5, -2.5, 3.25]), torch.zeros(4)
    run(rounded, 1, x=x, out=out, N=4)
    assert out.tolist() == [1.0, 2.0, -3.0, 3.0]
