"""8-bit floats on the CPU: every pattern read, values and ties rounded, as in the interpreter, which agrees with torch."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.formats import decode, encode, round_to
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import FLOATS
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.kernels import levels_here, loaded_object
from tests.ir.examples import function

SMALL = [name for name, kind in FLOATS.items() if kind.width == 8]
TORCH = {
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
}
COUNT = 4096


def conversion(source: str, result: str, rounding: str, loaded: str, stored: str) -> Operation:
    """Returns a kernel that converts COUNT numbers; 8-bit floats come and go as their bits."""
    n, turn = COUNT, "tt.bitcast"
    lines = [
        f"%0 = tt.make_range {{end = {n} : i32, start = 0 : i32}} : tensor<{n}xi32>",
        f"%1 = tt.splat %p : !tt.ptr<{loaded}> -> tensor<{n}x!tt.ptr<{loaded}>>",
        f"%2 = tt.addptr %1, %0 : tensor<{n}x!tt.ptr<{loaded}>>, tensor<{n}xi32>",
        f"%3 = tt.load %2 : tensor<{n}x!tt.ptr<{loaded}>>",
        f"%4 = {turn} %3 : tensor<{n}x{loaded}> -> tensor<{n}x{source}>",
        f"%5 = tt.fp_to_fp %4{rounding} : tensor<{n}x{source}> -> tensor<{n}x{result}>",
        f"%6 = {turn} %5 : tensor<{n}x{result}> -> tensor<{n}x{stored}>",
        f"%7 = tt.splat %q : !tt.ptr<{stored}> -> tensor<{n}x!tt.ptr<{stored}>>",
        f"%8 = tt.addptr %7, %0 : tensor<{n}x!tt.ptr<{stored}>>, tensor<{n}xi32>",
        f"tt.store %8, %6 : tensor<{n}x!tt.ptr<{stored}>>",
    ]
    return parse_module(function("\n".join(lines), f"%p: !tt.ptr<{loaded}>, %q: !tt.ptr<{stored}>"))


def run(module: Operation, *tensors: torch.Tensor, levels: Sequence[str] = ()) -> None:
    for level in levels or levels_here():
        loaded = loaded_object(compile_ttir(optimise_ttir(module.clone()), Target.parse(f"cpu:{level}"), Options()))
        loaded.launch((1, 1, 1), list(tensors))


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_has_its_value(name: str) -> None:
    bits = torch.arange(COUNT, dtype=torch.int32).to(torch.uint8)
    out = torch.empty(COUNT)
    run(conversion(name, "f32", "", "i8", "f32"), bits, out)
    expected = decode(bits.numpy(), FLOATS[name])
    np.testing.assert_array_equal(out.numpy(), expected)
    if name in TORCH:
        np.testing.assert_array_equal(bits.view(TORCH[name]).float().numpy(), expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(encode(expected[numbers], FLOATS[name]), bits.numpy()[numbers])


@pytest.mark.parametrize("source", ["f32", "f64", "f16"])
@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("name", SMALL)
def test_values_ties_and_their_neighbours_round_as_in_the_interpreter(name: str, rounding: str, source: str) -> None:
    kind = FLOATS[name]
    values = np.unique(decode(np.arange(256, dtype=np.uint8), kind))
    ties = (values[:-1] + values[1:]) / 2
    near = np.concatenate([values, ties, np.nextafter(ties, np.float32(9e9)), np.nextafter(ties, np.float32(-9e9))])
    spread = np.random.default_rng(0).normal(size=COUNT - len(near)) * np.logspace(-12, 7, COUNT - len(near))
    carrier = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[source]
    with np.errstate(over="ignore"):
        numbers = np.concatenate([near, spread]).astype(carrier)
    out = torch.empty(COUNT, dtype=torch.uint8)
    mode = "" if rounding == "rtne" else ", rounding = rtz"
    run(conversion(source, name, mode, source, "i8"), torch.from_numpy(numbers), out)
    np.testing.assert_array_equal(out.numpy(), encode(round_to(numbers, kind, rounding), kind))


@pytest.mark.parametrize("dtype", TORCH.values())
def test_tensors_of_each_dtype_that_torch_has_are_launched_on(dtype: torch.dtype) -> None:
    @kp.jit
    def widen(x, out, N: tl.constexpr):
        tl.store(out + tl.arange(0, N), tl.load(x + tl.arange(0, N)).to(tl.float32))

    x, out = torch.arange(256, dtype=torch.uint8).view(dtype), torch.empty(256)
    widen[(1,)](x, out, 256)
    torch.testing.assert_close(out, x.float(), rtol=0, atol=0, equal_nan=True)
