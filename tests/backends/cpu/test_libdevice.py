"""The functions of libdevice on the CPU: what the interpreter's NumPy says, for every function that there is."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.ir.interpret.libdevice import extern_elementwise
from kernelpack.ir.libdevice import CONVERSIONS, SYMBOLS, Variant
from kernelpack.ir.text import parse_module
from kernelpack.runtime.interpreter import Interpreter
from kernelpack.simt import Emulator
from tests.backends.cpu.kernels import levels_here
from tests.backends.cpu.test_fp8 import run
from tests.frontend.compiling import define
from tests.ir.examples import function

COUNT = 64
CARRIERS = {"fp32": "float32", "fp64": "float64", "i32": "int32", "u32": "int32", "i64": "int64", "u64": "int64"}
TYPES = {"fp32": "f32", "fp64": "f64", "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64"}
KNOWN: dict[tuple[str, ...], list[Variant]] = {}
for variant in SYMBOLS.values():
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


# (a function's name up to its rounding, its argument, its results rounded to nearest, down, up and toward zero)
TOP = {bits: ((1 << bits - 1) - 1, -(1 << bits - 1)) for bits in (32, 64)}
LARGEST, LEAST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_subnormal)
CONVERTED: list[tuple[str, float, list[float]]] = [
    *((f"{source}2{result}", value, rounded)
      for source in ("float", "double") for result in ("int", "ll")
      for value, rounded in ((0.5, [0, 0, 1, 0]), (1.5, [2, 1, 2, 1]), (-0.5, [0, -1, 0, 0]), (-2.5, [-2, -3, -2, -2]))),
    *((f"{source}2{result}", value, rounded)
      for source in ("float", "double") for result in ("uint", "ull")
      for value, rounded in ((2.5, [2, 2, 3, 2]), (-0.5, [0] * 4), (-3.0, [0] * 4), (-math.inf, [0] * 4), (math.inf, [-1] * 4))),
    *((f"{source}2{result}", sign * math.inf, [TOP[bits][sign < 0]] * 4)
      for source in ("float", "double") for result, bits in (("int", 32), ("ll", 64)) for sign in (1, -1)),
    *((f"float2{result}", math.nan, [0] * 4) for result in ("int", "uint")),
    *((name, math.nan, [TOP[bits][1]] * 4)
      for name, bits in (("double2int", 32), ("double2uint", 32), ("double2ll", 64), ("float2ll", 64), ("float2ull", 64))),
    ("double2int", 2.0**31 - 0.5, [2**31 - 1] * 4), ("double2int", -(2.0**31) - 0.5, [-(2**31)] * 4),
    ("float2uint", 2.0**31, [-(2**31)] * 4), ("double2ull", 2.0**63, [-(2**63)] * 4), ("double2ull", 2.0**64, [-1] * 4),
    ("int2float", 2**24 + 1, [2**24, 2**24, 2**24 + 2, 2**24]), ("int2float", -(2**24) - 1, [-(2**24), -(2**24) - 2, -(2**24), -(2**24)]),
    ("int2float", 2**31 - 1, [2**31, 2**31 - 128, 2**31, 2**31 - 128]), ("uint2float", -1, [2**32, 2**32 - 256, 2**32, 2**32 - 256]),
    ("ll2float", 2**62 + 2**38 + 1, [2**62 + 2**39, 2**62, 2**62 + 2**39, 2**62]),  # beside a half, which float64 does not tell
    ("ll2float", -(2**63), [-(2**63)] * 4), ("ull2float", -1, [2**64, 2**64 - 2**40, 2**64, 2**64 - 2**40]),
    ("ll2double", 2**53 + 1, [2**53, 2**53, 2**53 + 2, 2**53]), ("ll2double", -(2**53) - 1, [-(2**53), -(2**53) - 2, -(2**53), -(2**53)]),
    ("ull2double", -1, [2**64, 2**64 - 2**11, 2**64, 2**64 - 2**11]),
    ("double2float", 1e300, [math.inf, LARGEST, math.inf, LARGEST]), ("double2float", -1e300, [-math.inf, -math.inf, -LARGEST, -LARGEST]),
    ("double2float", 1e-300, [0.0, 0.0, LEAST, 0.0]), ("double2float", -1e-300, [-0.0, -LEAST, -0.0, -0.0]),
    ("double2float", math.inf, [math.inf] * 4), ("double2float", math.nan, [math.nan] * 4),
    ("double2float", 1 + 2.0**-30, [1.0, 1.0, 1 + 2.0**-23, 1.0]), ("double2float", -1 - 2.0**-30, [-1.0, -1 - 2.0**-23, -1.0, -1.0]),
]  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", "interpreter", "cuda:sm_80"])
def test_conversions_round_as_they_say(target: str) -> None:
    """On the CPU, as NumPy has them, and as the emulator has them for the code of GPUs."""
    for name in dict.fromkeys(name for name, _, _ in CONVERTED):
        cases = [(value, rounded) for other, value, rounded in CONVERTED if other == name]
        argument, result = CONVERSIONS[f"{name}_rn"]
        given = np.resize(np.array([value for value, _ in cases], dtype=CARRIERS[argument]), 16)
        columns = np.resize(np.array([rounded for _, rounded in cases], dtype=CARRIERS[result]), (16, 4))
        loaded = "tl.load(x + at)" + f".to(tl.uint{argument[1:]}, bitcast=True)" * argument.startswith("u")
        calls = "".join(
            f"    tl.store(out + {16 * at} + at, tl.extra.libdevice.{name}_{mode}({loaded}))\n"
            for at, mode in enumerate(("rn", "rd", "ru", "rz"))
        )
        kernel = define(f"@kp.jit\ndef kernel(x, out):\n    at = tl.arange(0, 16)\n{calls}")["kernel"]
        out = torch.empty(4, 16, dtype=getattr(torch, CARRIERS[result]))
        with Interpreter() if target == "interpreter" else Emulator(target) if target != "cpu" else nullcontext():
            kernel[(1,)](torch.from_numpy(given), out)
        np.testing.assert_array_equal(out.numpy(), columns.T, err_msg=name)


# function: (argument, value to 17 digits)
VALUES = {
    "erfinv": [(1e-10, 8.862269254527581e-11), (0.25, 0.2253120550121781), (0.5, 0.4769362762044699), (-0.999, -2.3267537655135246)],
    "erfcinv": [(1e-300, 26.209469960516124), (1e-05, 3.123413274340875), (0.9, 0.08885599049425767), (1.5, -0.4769362762044699)],
    "normcdfinv": [(1e-12, -7.034483825301132), (0.3, -0.5244005127080408), (0.975, 1.9599639845400538)],
    "erfcx": [
        (-3.0, 16205.988853999586), (0.5, 0.6156903441929259), (8.0, 0.06998516620088092),
        (25.9, 0.021767181150738214), (26.5, 0.021275046685371106), (1000.0, 0.0005641893014533876),
    ],
    "cyl_bessel_i0": [
        (0.1, 1.0025015629340956), (3.0, 4.8807925858650245), (19.9, 39513376.52006682), (20.5, 70922869.83431701),
        (-60.0, 5.894077055609801e24), (712.0, 2.4684110577627523e307),
    ],
    "cyl_bessel_i1": [
        (0.1, 0.050062526047092694), (3.0, 3.9533702174026093), (-19.9, -38507423.87486228), (20.5, 69170831.67918438),
        (700.0, 1.5285003902339006e302),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_functions_of_no_c_library_are_accurate(name: str) -> None:
    text = f"@kp.jit\ndef kernel(x, n):\n    at = tl.arange(0, 8)\n    tl.store(x + at, tl.extra.libdevice.{name}(tl.load(x + at)))\n"
    given, expected = zip(*VALUES[name], strict=True)
    x = torch.ones(8, dtype=torch.float64)
    x[: len(given)] = torch.tensor(given, dtype=torch.float64)
    define(text)["kernel"][(1,)](x, 8)
    np.testing.assert_allclose(x[: len(given)].numpy(), expected, rtol=4e-15)


# (function, arguments, the exact value minus a result, or something of its sign)
DIRECTED: list[tuple[str, int, Callable[..., Fraction]]] = [
    ("add", 2, lambda r, x, y: x + y - r),
    ("sub", 2, lambda r, x, y: x - y - r),
    ("mul", 2, lambda r, x, y: x * y - r),
    ("div", 2, lambda r, x, y: x / y - r),
    ("fma", 3, lambda r, x, y, z: x * y + z - r),
    ("rcp", 1, lambda r, x: 1 / x - r),
    ("sqrt", 1, lambda r, x: x - r * abs(r)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directed_rounding_is_exact(dtype: torch.dtype) -> None:
    """Where results are tiny or too large, too."""
    count = 256
    info, random = torch.finfo(dtype), np.random.default_rng(7)
    top, least = float(info.max), float(info.smallest_normal)
    edges = [
        1.0,
        1.0 + info.eps,
        3.0,
        top,
        least,
        least * info.eps,
        7 * least * info.eps,
        least * 1.5,
        top / 3,
        0.1,
        1e-20,
        1e20,
    ]
    columns = []
    for _ in range(3):
        numbers = random.normal(size=count) * 2.0 ** random.integers(-60, 60, count)
        numbers[:192] = random.choice(edges, 192) * random.choice([-1, 1], 192)
        columns.append(torch.from_numpy(numbers).to(dtype))
    lines = ["@kp.jit", "def kernel(x, y, z, out, N: tl.constexpr):", "    at = tl.arange(0, N)"]
    lines += ["    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(z + at)"]
    calls = [(name, mode, exact, more) for name, more, exact in DIRECTED for mode in ("rd", "ru", "rz")]
    for at, (name, mode, _, more) in enumerate(calls):
        operands = "tl.abs(a)" if name == "sqrt" else ", ".join("abc"[:more])
        lines.append(f"    tl.store(out + {at} * N + at, tl.extra.libdevice.{name}_{mode}({operands}))")
    out = torch.empty(len(calls), count, dtype=dtype)
    define("\n".join(lines) + "\n")["kernel"][(1,)](*columns, out, count)
    for (name, mode, exact, more), results in zip(calls, out.numpy(), strict=True):
        for result, *values in zip(results, *(column.numpy() for column in columns[:more]), strict=True):
            operands = [Fraction(float(abs(value) if name == "sqrt" else value)) for value in values]
            case = f"{name}_{mode}({', '.join(map(str, values))}) = {result}"
            sign = exact(Fraction(0), *operands)
            downward = mode == "rd" or (mode == "rz" and sign > 0)
            beyond = np.nextafter(result, result.dtype.type(np.inf if downward else -np.inf))  # what is not yet too far
            if np.isfinite(result):
                left = exact(Fraction(float(result)), *operands)
                assert left >= 0 if downward else left <= 0, case
            else:
                assert (result < 0) == downward, case
            if np.isfinite(beyond):
                left = exact(Fraction(float(beyond)), *operands)
                assert left < 0 if downward else left > 0, case
