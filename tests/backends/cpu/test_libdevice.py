"""The functions of libdevice on the CPU: what the interpreter's NumPy says, for every function that there is."""

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.library_functions import refusal
from kernelpack.ir.interpret.libdevice import extern_elementwise
from kernelpack.ir.libdevice import SYMBOLS, Variant
from kernelpack.ir.text import parse_module
from tests.backends.cpu.kernels import levels_here
from tests.backends.cpu.test_fp8 import run
from tests.ir.examples import function

COUNT = 64
CARRIERS = {"fp32": "float32", "fp64": "float64", "i32": "int32", "u32": "int32", "i64": "int64", "u64": "int64"}
TYPES = {"fp32": "f32", "fp64": "f64", "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64"}
KNOWN: dict[tuple[str, ...], list[Variant]] = {}
for variant in SYMBOLS.values():
    if refusal(variant.symbol) is None:
        few = "few" if variant.name in ("jn", "yn", "ldexp", "scalbn") else "any"
        KNOWN.setdefault((few, *variant.arguments), []).append(variant)


def inputs(few: str, kinds: tuple[str, ...]) -> list[np.ndarray]:
    """Returns numbers that most functions are defined for, and some that few are."""
    random = np.random.default_rng(len(kinds))
    given = []
    for kind in kinds:
        if kind.startswith("fp"):
            numbers = np.concatenate([random.uniform(-0.99, 0.99, COUNT // 2), random.normal(size=COUNT // 2) * 5])
            numbers[:6] = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]
        elif few == "few":
            numbers = random.integers(0, 5, COUNT)
        else:
            numbers = random.integers(-(1 << 31), 1 << 31, COUNT)
            numbers[:4] = [0, 1, -1, -(1 << 31)]
        given.append(numbers.astype(CARRIERS[kind]))
    return given


@pytest.mark.parametrize("signature", KNOWN, ids=lambda signature: " ".join(signature))
def test_functions(signature: tuple[str, ...]) -> None:
    """All functions of the same types, in one kernel."""
    given, variants = inputs(signature[0], signature[1:]), KNOWN[signature]
    kinds = [TYPES[kind] for kind in (*signature[1:], *(variant.result for variant in variants))]
    lines = [f"%r = tt.make_range {{end = {COUNT} : i32, start = 0 : i32}} : tensor<{COUNT}xi32>"]
    for at, kind in enumerate(kinds):
        tile = f"tensor<{COUNT}x!tt.ptr<{kind}>>"
        lines += [f"%s{at} = tt.splat %p{at} : !tt.ptr<{kind}> -> {tile}"]
        lines += [f"%q{at} = tt.addptr %s{at}, %r : {tile}, tensor<{COUNT}xi32>"]
    lines += [f"%x{at} = tt.load %q{at} : tensor<{COUNT}x!tt.ptr<{kinds[at]}>>" for at in range(len(given))]
    operands = ", ".join(f"%x{at}" for at in range(len(given)))
    tiles = ", ".join(f"tensor<{COUNT}x{kind}>" for kind in kinds[: len(given)])
    for at, variant in enumerate(variants, len(given)):
        call = f'tt.extern_elementwise {operands} {{symbol = "{variant.symbol}"}} : ({tiles}) -> tensor<{COUNT}x{kinds[at]}>'
        lines += [f"%x{at} = {call}", f"tt.store %q{at}, %x{at} : tensor<{COUNT}x!tt.ptr<{kinds[at]}>>"]
    arguments = ", ".join(f"%p{at}: !tt.ptr<{kind}>" for at, kind in enumerate(kinds))
    module = parse_module(function("\n".join(lines), arguments))
    out = [torch.empty(COUNT, dtype=getattr(torch, CARRIERS[variant.result])) for variant in variants]
    run(module, *map(torch.from_numpy, given), *out, levels=levels_here()[:1])
    calls = [op for op in module.walk() if op.name == "tt.extern_elementwise"]
    for op, variant, result in zip(calls, variants, out, strict=True):
        with np.errstate(all="ignore"):
            expected = extern_elementwise(op, *given)
        near = {"fp32": 4e-6, "fp64": 1e-13}.get(variant.result, 0.0)
        np.testing.assert_allclose(result.numpy(), expected, rtol=near, atol=near, err_msg=variant.name)


def test_from_the_language() -> None:
    @kp.jit
    def kernel(x, y, n, N: tl.constexpr):
        at = tl.arange(0, N)
        a = tl.load(x + at)
        b = tl.where(tl.extra.libdevice.isnan(a), 1.0, tl.extra.libdevice.pow(a, 2))
        tl.store(y + at, b + tl.extra.libdevice.popc(at + n))

    x, y = torch.tensor([1.0, float("nan"), 3.0, 4.0]), torch.empty(4)
    kernel[(1,)](x, y, 1, 4)
    assert y.tolist() == [2.0, 2.0, 11.0, 17.0]
