"""Random kernels give the same results by the interpreter, by the CPU backend, and by the CUDA backend on the emulator."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine

from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.ir.interpret import launch
from kernelpack.ir.text import parse_module
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.simt.compile import program_of
from kernelpack.target import Target
from tests.backends.cpu.agreement import ttir_of
from tests.backends.cpu.kernels import levels_here, loaded_object
from tests.frontend.compiling import define
from tests.language.random_flow import FlowWriter
from tests.language.random_kernels import CELLS, FACTORS, FLOATS, INTEGERS, MEMORY, PROGRAMS, SLOT, RandomKernel, kernels

BATCH = 25
"""Programs that one test draws; different numbers draw different ones."""
FEW = range(1)
MANY = range(1, 80)


@functools.cache
def memory() -> list[torch.Tensor]:
    """Returns the inputs of random kernels: every extreme of the integers, floats of every kind. And cells to update."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for name in (*INTEGERS, "int32"):
        kind = getattr(torch, name)
        count = MEMORY if len(made) < len(INTEGERS) else PROGRAMS * CELLS * SLOT
        bits = torch.randint(-(1 << 31), 1 << 31, (count,), generator=generator, dtype=torch.int64)
        bits[::3] %= 8
        bits[:4] = torch.tensor([0, -1, torch.iinfo(kind).min, -1 if kind == torch.uint64 else torch.iinfo(kind).max])
        made.append(bits.to(kind))
    floats = [torch.randn(MEMORY, generator=generator, dtype=torch.float64) * 3 for _ in FLOATS]
    factors = torch.randint(-3, 4, (MEMORY,), generator=generator)
    reals = [values.to(getattr(torch, name)) for values, name in zip(floats, FLOATS, strict=True)]
    return [*made[:-1], *reals, *(factors.to(getattr(torch, name)) for name in FACTORS), made[-1]]


def compare(random: RandomKernel, n: int, level: str, target: str, options: Options, tolerance: float = 0.0) -> None:
    """Runs a kernel in all three ways from the same memory; what they leave in it must agree."""
    kernel = define(random.source)["kernel"]
    assert isinstance(kernel, JITFunction)
    size = PROGRAMS * max(random.slots, 1) * SLOT
    out = [torch.full((size,), -77, dtype=torch.int64), torch.full((size,), -77, dtype=torch.float64)]

    def arguments() -> list[torch.Tensor | int | float]:
        cells = memory()[-1].clone()
        return [*memory()[:-1], cells, cells, *(tensor.clone() for tensor in out), n, 0.75]

    module = ttir_of(kernel, expected := arguments(), {})
    launch(module, (PROGRAMS,), expected)
    again = parse_module(str(optimise_ttir(module)))
    on_cpu, on_cuda = arguments(), arguments()
    for barrier in [op for op in module.walk() if op.name == "gpu.barrier"]:
        barrier.erase()  # a program has one thread on a CPU, which does in order what the source says
    loaded_object(compile_ttir(module, Target.parse(f"cpu:{level}"), options)).launch((PROGRAMS, 1, 1), on_cpu)
    program_of(again, Target.parse(target), options).run((PROGRAMS,), on_cuda)
    for where, actual in ((level, on_cpu), (target, on_cuda)):
        for name, ours, theirs in zip(kernel.arg_names, actual, expected, strict=True):
            if name in ("cells", "whole", "real"):
                torch.testing.assert_close(
                    ours,
                    theirs,
                    rtol=tolerance,
                    atol=tolerance,
                    equal_nan=True,
                    msg=lambda text, m=f"{name} on {where}": f"{m}: {text}",
                )


def draw_and_compare(number: int, examples: int, exact: bool) -> None:
    """Compares kernels that follow from a number. What fails is reduced to a small kernel, and printed as source."""

    @seed(number)
    @settings(
        max_examples=examples,
        phases=[Phase.generate, Phase.shrink],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(
        random=kernels(FlowWriter, exact=exact, steps=5),
        n=st.sampled_from([0, 1, 3, 6, 11]),
        level=st.sampled_from(levels_here()),
        target=st.sampled_from(["cuda:sm_80", "cuda:sm_90a"]),
        num_warps=st.sampled_from([1, 4]),
    )
    def test(random: RandomKernel, n: int, level: str, target: str, num_warps: int) -> None:
        options = Options(num_warps=num_warps, enable_fp_fusion=not exact)  # x * 3 + 1 rounded once is not the same
        compare(random, n, level, target, options, 0.0 if exact else 2e-5)

    test()


@pytest.mark.parametrize("number", [*FEW, *(pytest.param(number, marks=pytest.mark.slow) for number in MANY)])
def test_random_kernels_agree(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers, memory, conversions and single roundings to the bit; every fifth batch elementary functions and float sums."""
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", 45)
    monkeypatch.setattr(engine.ConjectureRunner, "generate_mutations_from", lambda *_: None)  # most of a mutant is its parent
    draw_and_compare(number, BATCH, exact=number % 5 != 4)
