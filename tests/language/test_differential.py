"""Random kernels give the same results by the interpreter and by the CPU backend at every level."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernelpack.frontend.jit import JITFunction
from tests.backends.cpu.agreement import check
from tests.frontend.compiling import define
from tests.language.random_kernels import FLOATS, INTEGERS, MEMORY, PROGRAMS, SLOT, RandomKernel, kernels

# kernels are small enough to read as they were drawn, and each takes a compilation: failures are not shrunk
_SETTINGS = settings(
    deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck), print_blob=False
)


def memory() -> list[torch.Tensor]:
    """Returns the inputs of random kernels: every extreme of the integers, floats of every kind."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for name in INTEGERS:
        kind = getattr(torch, name)
        bits = torch.randint(-(1 << 31), 1 << 31, (MEMORY,), generator=generator, dtype=torch.int64)
        bits[::3] %= 8
        bits[:4] = torch.tensor([0, -1, torch.iinfo(kind).min, torch.iinfo(kind).max])
        made.append(bits.to(kind))
    for name in FLOATS:
        made.append((torch.randn(MEMORY, generator=generator, dtype=torch.float64) * 3).to(getattr(torch, name)))
    return made


def compare(random: RandomKernel, n: int, rtol: float = 0.0, atol: float = 0.0) -> None:
    kernel = define(random.source)["kernel"]
    assert isinstance(kernel, JITFunction)
    size = PROGRAMS * max(random.slots, 1) * SLOT
    whole, real = torch.full((size,), -77, dtype=torch.int64), torch.full((size,), -77, dtype=torch.float64)
    check(kernel, (PROGRAMS,), *memory(), whole, real, n, 0.75, rtol=rtol, atol=atol)


@settings(_SETTINGS, max_examples=45)
@given(random=kernels(), n=st.sampled_from([0, 1, 3, 6, 11]))
def test_integers_memory_conversions_and_single_roundings_agree_to_the_bit(random: RandomKernel, n: int) -> None:
    compare(random, n)


@settings(_SETTINGS, max_examples=15)
@given(random=kernels(exact=False, steps=8), n=st.sampled_from([3, 6]))
def test_elementary_functions_and_float_sums_agree_within_rounding(random: RandomKernel, n: int) -> None:
    compare(random, n, rtol=1e-5, atol=1e-5)
