"""Types and values of operators: promotion, weak numbers, C's division, signedness, casts; what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import kernelpack.language as tl
from kernelpack.errors import CompilationError
from tests.frontend.compiling import body_of, compile_kernel, kernel, run

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SIGNATURE = {f"{sign}int{width}": f"{sign or 'i'}{width}" for sign in ("", "u") for width in (8, 16, 32, 64)}
SIGNATURE |= {"int1": "i1"} | {name: name for name in tl.dtype.FP_TYPES}

# ---- the type of a result ----


def result_type(expression: str, x: str, y: str) -> str:
    """Returns the name of the type of an expression of two scalars."""
    for name in tl.dtype.SINT_TYPES + tl.dtype.UINT_TYPES + tl.dtype.FP_TYPES:
        fn = kernel(f"tl.static_assert(({expression}).dtype == T)", "x, y, T")
        try:
            compile_kernel(fn, x=SIGNATURE[x], y=SIGNATURE[y], T=tl.dtype(name))
        except CompilationError as problem:
            if "assertion failed" not in problem.message:
                raise
        else:
            return name
    raise AssertionError(expression)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("int8", "int32", "int32"),
        ("int64", "int16", "int64"),
        ("uint8", "int8", "uint8"),
        ("int32", "uint32", "uint32"),
        ("int64", "uint32", "int64"),
        ("uint64", "int64", "uint64"),
        ("int1", "int8", "int8"),
        ("int1", "int1", "int1"),
        ("int64", "fp16", "fp16"),
        ("uint8", "bf16", "bf16"),
        ("int32", "fp32", "fp32"),
        ("int64", "fp64", "fp64"),
        ("fp16", "fp32", "fp32"),
        ("bf16", "fp32", "fp32"),
        ("fp16", "bf16", "fp16"),
        ("bf16", "bf16", "bf16"),
        ("fp16", "fp16", "fp16"),
        ("fp32", "fp64", "fp64"),
    ],
)
def test_promotion_of_two_run_time_values(x: str, y: str, expected: str) -> None:
    if "bf16" in (x, y) and "uint8" in (x, y):
        expected = "fp32"  # bfloat16 goes with nothing but itself
    assert result_type("x + y", x, y) == expected
    assert result_type("y * x", x, y) == expected
    assert result_type("tl.where(True, x, y)", x, y) == expected


@pytest.mark.parametrize(
    ("expression", "x", "expected"),
    [
        ("x + 1", "int8", "int8"),
        ("x + 1", "uint64", "uint64"),
        ("2 - x", "fp16", "fp16"),
        ("x * 2.5", "bf16", "bf16"),
        ("x * 2.5", "fp64", "fp64"),
        ("x + 1e300", "fp32", "fp32"),
        ("x * 2.5", "int8", "fp32"),
        ("x * 1e300", "int32", "fp64"),
        ("x + 1", "int1", "int32"),
        ("x + True", "int8", "int8"),
        ("x | True", "int1", "int1"),
        ("x + 3000000000", "int1", "uint32"),
        ("x + 9000000000", "int1", "int64"),
        ("x / 2", "fp16", "fp32"),
        ("x / 2", "bf16", "fp32"),
        ("x % 2", "fp16", "fp32"),
        ("x / 2", "int64", "fp32"),
        ("x / 2", "fp64", "fp64"),
        ("x // 2", "uint8", "uint8"),
        ("-x", "int8", "int8"),
        ("~x", "uint16", "uint16"),
        ("not x", "int32", "int1"),
        ("x > 1", "fp32", "int1"),
        ("x and x", "int32", "int1"),
        ("tl.where(True, x, 0)", "fp16", "fp16"),
        ("tl.where(True, 1, 0.0)", "fp16", "fp32"),
        ("tl.where(True, x, 0.0)", "fp8e5", "fp8e5"),
        ("tl.where(True, x, x)", "fp8e4nv", "fp8e4nv"),
        ("tl.where(True, x, x.to(tl.float8e5))", "fp8e4nv", "fp16"),
        ("tl.maximum(x, 0.0)", "fp16", "fp32"),
        ("tl.maximum(x, x)", "bf16", "fp32"),
        ("tl.minimum(x, 1)", "int8", "int32"),
        ("max(x, 1)", "int64", "int64"),
        ("tl.fdiv(x, x)", "fp16", "fp16"),
        ("tl.abs(x)", "int8", "int8"),
        ("x.to(tl.float16)", "int8", "fp16"),
        ("x.cast(tl.uint8, bitcast=True)", "int8", "uint8"),
        ("tl.cast(3, tl.int64)", "int8", "int64"),
        ("tl.sum(tl.full((4,), x, tl.int8), 0)", "int8", "int32"),
        ("tl.sum(tl.full((4,), x, tl.uint16), 0)", "int8", "uint32"),
        ("tl.sum(tl.full((4,), True, tl.int1), 0)", "int8", "uint32"),
        ("tl.sum(tl.full((4,), x, tl.float16), 0)", "int8", "fp16"),
        ("tl.sum(tl.full((4,), x, tl.bfloat16), 0)", "int8", "bf16"),
        ("tl.sum(tl.full((4,), x, tl.bfloat16), 0, dtype=tl.float32)", "int8", "fp32"),
        ("tl.sum(tl.full((4,), x, tl.int64))", "int8", "int64"),
        ("tl.max(tl.full((4,), x, tl.float16), 0)", "int8", "fp32"),
        ("tl.min(tl.full((4,), x, tl.uint8), 0)", "int8", "int32"),
        ("tl.cumsum(tl.full((4,), x, tl.bfloat16), 0)", "int8", "fp32"),
        ("tl.cumsum(tl.full((4,), x, tl.float16), 0)", "int8", "fp16"),
        ("tl.cumprod(tl.full((4,), x, tl.int8), 0)", "int8", "int8"),
        ("tl.argmax(tl.full((4,), x, tl.float16), 0)", "int8", "int32"),
        ("tl.program_id(0) + x", "int8", "int32"),
    ],
)
def test_types_with_weak_numbers_and_of_functions(expression: str, x: str, expected: str) -> None:
    assert result_type(expression, x, "int32") == expected


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [("1", "int32"), ("-(1 << 31)", "int32"), ("1 << 31", "uint32"), ("1 << 32", "int64"), ("1 << 63", "uint64"), ("True", "int1"),
     ("0.5", "fp32"), ("1e300", "fp64"), ("float('nan')", "fp32"), ("1e-40", "fp64")],
)  # fmt: skip
def test_assigned_numbers_become_typed(assignment: str, expected: str) -> None:
    fn = kernel(f"v = {assignment}\ntl.static_assert(v.dtype == T)", "T")
    compile_kernel(fn, T=tl.dtype(expected))


def test_a_weak_number_is_one_constant_of_the_other_operands_type() -> None:
    fn = kernel("tl.store(p + tl.arange(0, 4), tl.load(p + tl.arange(0, 4)) * 3)", "p")
    text = body_of(compile_kernel(fn, p="*bf16"))
    assert "arith.constant dense<3.000000e+00> : tensor<4xbf16>" in text
    assert text.count("arith.constant") == 1


# ---- values ----


def elementwise(expression: str, *inputs: np.ndarray | torch.Tensor, out: np.ndarray | torch.Tensor) -> None:
    """Computes an expression of tiles a, b, c into out."""
    names = "abc"[: len(inputs)]
    loads = "".join(f"{name} = tl.load({name}_ptr + r)\n" for name in names)
    fn = kernel(
        f"r = tl.arange(0, N)\n{loads}tl.store(out + r, {expression})",
        f"out, {''.join(f'{name}_ptr, ' for name in names)}N: tl.constexpr",
    )
    run(fn, 1, out=out, N=len(out), **{f"{name}_ptr": value for name, value in zip(names, inputs, strict=True)})


def edges(name: str, size: int = 64) -> np.ndarray:
    """Returns values of an integer type, with its extremes first."""
    info = np.iinfo(name)
    random = np.random.default_rng(len(name))
    values = random.integers(info.min, info.max, size, dtype=name, endpoint=True)
    values[:6] = [info.min, info.max, 0, 1, info.max // 3, info.min // 2]
    return values


def truncating(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns quotients and remainders as C has them, through Python's unbounded integers."""
    quotients, remainders = [], []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        quotients.append(quotient)
        remainders.append(a - quotient * b)
    return np.array(quotients, x.dtype), np.array(remainders, x.dtype)


@pytest.mark.parametrize("name", INTEGERS)
def test_division_and_remainder_truncate_toward_zero(name: str) -> None:
    x, y = edges(name), edges(name)[::-1].copy()
    y[y == 0] = 3
    if name.startswith("int"):
        y[y == -1] = -2  # the smallest integer over -1 overflows
    out = np.zeros(64, name)
    quotient, remainder = truncating(x, y)
    elementwise("a // b", x, y, out=out)
    assert (out == quotient).all()
    elementwise("a % b", x, y, out=out)
    assert (out == remainder).all()


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_compare_and_shift_by_their_sign(name: str) -> None:
    x, y = edges(name), edges(name)[::-1].copy()
    out = np.zeros(64, np.bool_)
    for symbol in ("<", "<=", ">", ">=", "==", "!="):
        elementwise(f"a {symbol} b", x, y, out=out)
        assert (out == eval(f"x {symbol} y")).all(), symbol
    shifted, by = np.zeros(64, name), (np.arange(64) % np.iinfo(name).bits).astype(name)
    elementwise("a >> b", x, by, out=shifted)
    assert (shifted == x >> by).all()
    elementwise("a << b", x, by, out=shifted)
    assert (shifted == x << by).all()


@pytest.mark.parametrize(("left", "right"), list(itertools.product(["int8", "uint16", "int32", "uint32", "int64"], repeat=2)))
def test_mixed_integers_widen_by_their_own_sign(left: str, right: str) -> None:
    x, y = edges(left), edges(right)
    common = tl_common(left, right)
    out = np.zeros(64, common)
    elementwise("a + b", x, y, out=out)
    with np.errstate(over="ignore"):
        assert (out == x.astype(common) + y.astype(common)).all()


def tl_common(a: str, b: str) -> str:
    """Returns C's common type without promotion to int: the wider; of equal widths the unsigned."""
    widths = [np.iinfo(a).bits, np.iinfo(b).bits]
    if widths[0] == widths[1]:
        return a if a.startswith("u") else b
    return a if widths[0] > widths[1] else b


@pytest.mark.parametrize("source", [*INTEGERS, "float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int32", "uint32", "int64", "float16", "float32", "float64", "bool"])
def test_casts(source: str, target: str) -> None:
    x = edges(source) if source in INTEGERS else np.linspace(-100, 100, 64).astype(source)
    if target.startswith("u") and source not in INTEGERS:
        x = np.abs(x)
    out = np.zeros(64, target)
    names = {"bool": "int1"} | {f"float{width}": f"float{width}" for width in (16, 32, 64)}
    elementwise(f"a.to(tl.{names.get(target, target)})", x, out=out)
    with np.errstate(over="ignore"):
        assert (out == x.astype(target)).all()


@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.float32])
def test_floats_round_to_nearest_even(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.randn(64, dtype=torch.float64).to(source)
    out = torch.zeros(64, dtype=target)
    elementwise(f"a.to(tl.{str(target).removeprefix('torch.')})", x, out=out)
    assert torch.equal(out, x.to(target))


def test_rounding_toward_zero() -> None:
    x, out = torch.tensor([1.0 + 2.0**-7 - 2.0**-20, -1.0 - 2.0**-8 - 2.0**-9] * 2), torch.zeros(4, dtype=torch.bfloat16)
    elementwise('a.to(tl.bfloat16, fp_downcast_rounding="rtz")', x, out=out)
    assert out.tolist() == [1.0, -1.0] * 2


def test_a_cast_to_the_same_type_takes_any_rounding() -> None:
    x, out = torch.randn(4), torch.zeros(4)
    elementwise('a.to(tl.float32, fp_downcast_rounding="rtne")', x, out=out)
    assert torch.equal(out, x)


def test_integer_types_by_their_width() -> None:
    x, out = torch.tensor([1.0, -2.5, 0.0, 3.0]), torch.zeros(4, dtype=torch.int32)
    elementwise("a.to(tl.core.get_int_dtype(bitwidth=a.dtype.primitive_bitwidth, signed=True), bitcast=True)", x, out=out)
    assert torch.equal(out, x.view(torch.int32))


def test_bitcasts() -> None:
    x, out = np.linspace(-3, 3, 64).astype(np.float32), np.zeros(64, np.uint32)
    elementwise("a.to(tl.uint32, bitcast=True)", x, out=out)
    assert (out == x.view(np.uint32)).all()
    back = np.zeros(64, np.float32)
    elementwise("a.to(tl.float32, bitcast=True)", out, out=back)
    assert (back == x).all()


def test_true_division_of_integers_is_float32() -> None:
    x, y = np.arange(-32, 32, dtype=np.int64), np.full(64, 7, np.int64)
    out = np.zeros(64, np.float32)
    elementwise("a / b", x, y, out=out)
    assert (out == x.astype(np.float32) / np.float32(7)).all()


def test_float_remainder_has_the_sign_of_the_dividend() -> None:
    x, y = np.linspace(-10, 10, 64).astype(np.float32), np.full(64, 3, np.float32)
    out = np.zeros(64, np.float32)
    elementwise("a % b", x, y, out=out)
    assert (out == np.fmod(x, y)).all()


def test_nan_compares_and_selects_as_in_ieee() -> None:
    x, y = np.array([np.nan, 1, np.nan, 2] * 2, np.float32), np.array([1, np.nan, np.nan, 2] * 2, np.float32)
    out = np.zeros(8, np.bool_)
    for symbol in ("<", "<=", ">", ">=", "==", "!="):
        elementwise(f"a {symbol} b", x, y, out=out)
        assert (out == eval(f"x {symbol} y")).all(), symbol
    values = np.zeros(8, np.float32)
    for function, ignoring, propagating in (("maximum", np.fmax, np.maximum), ("minimum", np.fmin, np.minimum)):
        elementwise(f"tl.{function}(a, b)", x, y, out=values)
        np.testing.assert_array_equal(values, ignoring(x, y))
        elementwise(f"tl.{function}(a, b, propagate_nan=tl.PropagateNan.ALL)", x, y, out=values)
        np.testing.assert_array_equal(values, propagating(x, y))
    elementwise("tl.clamp(a, -1.0, 1.5)", x, out=values)
    np.testing.assert_array_equal(values, np.fmin(np.fmax(x, -1), 1.5))
    elementwise("tl.clamp(a, -1.0, 1.5, tl.PropagateNan.ALL)", x, out=values)
    np.testing.assert_array_equal(values, np.clip(x, -1, 1.5))


def test_negation_keeps_the_sign_of_zero() -> None:
    x, out = np.array([0.0, -0.0, 1.5, np.inf], np.float32), np.zeros(4, np.float32)
    elementwise("-a", x, out=out)
    assert list(np.signbit(out)) == [True, False, True, True]


def test_booleans() -> None:
    x, y = np.array([0, 1, 0, 1] * 2, np.bool_), np.array([0, 0, 1, 1] * 2, np.bool_)
    out = np.zeros(8, np.bool_)
    for expression, expected in (
        ("a & b", x & y),
        ("a | b", x | y),
        ("a ^ b", x ^ y),
        ("~a", ~x),
        ("not a", ~x),
        ("a == b", x == y),
    ):
        elementwise(expression, x, y, out=out) if "b" in expression else elementwise(expression, x, out=out)
        assert (out == expected).all(), expression
    counts = np.zeros(8, np.int32)
    elementwise("a + 1", x, out=counts)
    assert (counts == x + 1).all()


@pytest.mark.parametrize(
    ("function", "reference"),
    [("exp", torch.exp), ("exp2", torch.exp2), ("log", torch.log), ("log2", torch.log2), ("log1p", torch.log1p), ("sin", torch.sin),
     ("cos", torch.cos), ("tanh", torch.tanh), ("erf", torch.erf), ("sqrt", torch.sqrt), ("rsqrt", torch.rsqrt),
     ("floor", torch.floor), ("ceil", torch.ceil), ("abs", torch.abs), ("sqrt_rn", torch.sqrt), ("sigmoid", torch.sigmoid)],
)  # fmt: skip
def test_mathematics(function: str, reference: object) -> None:
    x, out = torch.linspace(0.1, 4.0, 64), torch.zeros(64)
    elementwise(f"tl.{function}(a)", x, out=out)
    torch.testing.assert_close(out, reference(x))
    elementwise(f"a.{function}()", x, out=out)
    torch.testing.assert_close(out, reference(x))


def test_mathematics_of_several_operands() -> None:
    x, y, z = torch.randn(64), torch.randn(64), torch.randn(64)
    out = torch.zeros(64)
    for expression, expected in (
        ("tl.fma(a, b, c)", torch.addcmul(z, x, y)),
        ("tl.div_rn(a, b) + c * 0", x / y),
        ("tl.fdiv(a, b) + c * 0", x / y),
    ):
        elementwise(expression, x, y, z, out=out)
        torch.testing.assert_close(out, expected)
    a, b = edges("uint32"), edges("uint32")[::-1].copy()
    high = np.zeros(64, np.uint32)
    elementwise("tl.umulhi(a, b)", a, b, out=high)
    assert (high == (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32)).all()


# ---- what is refused ----


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x / u", r"Cannot use /, // or % with int32 and uint32 because they have different signedness"),
        ("x // u", r"different signedness"),
        ("f // 2", r"// does not take floats"),
        ("f & 1", r"& does not take floats"),
        ("f << 1", r"<< does not take floats"),
        ("~f", r"~ takes integers, not fp32"),
        ("u + -1", r"the number -1 is out of range for the other operand's type, uint32"),
        ("x + 3000000000", r"3000000000 is out of range .* int32"),
        ("x * None", r"\* does not take None"),
        ("x + 'a'", r"\+ does not take 'a'"),
        ("x + tl.float32", r"\+ does not take tl.float32"),
        ("x == None", r"never None"),
        ("x ** 2", r"\*\* does not take run-time values"),
        ("x @ x", r"@ does not take run-time values"),
        ("x in (1, 2)", r"`in` does not take run-time values"),
        ("p + f", r"\+ does not take pointer<fp32> and fp32"),
        ("p + p", r"pointer<fp32> \+ pointer<fp32> has no meaning"),
        ("x - p", r"int32 - pointer<fp32> has no meaning"),
        ("p * 2", r"\* does not take pointer<fp32> and int32"),
        ("p < p", r"< does not take pointer<fp32>"),
        ("-p", r"a pointer cannot be negated"),
        ("r + tl.arange(0, 16)", r"shapes \[8\] and \[16\] do not broadcast: axis 0 has extents 8 and 16"),
        ("r + tl.arange(0, 4)", r"shapes \[8\] and \[4\] do not broadcast: axis 0 has extents 8 and 4"),
        ("tl.where(r > 1, r, tl.arange(0, 4))", r"shapes .* do not broadcast"),
        ("tl.where(x > 1, p, x)", r"cannot choose between"),
        ("r[0]", r"tiles are indexed with `:` and None only"),
        ("r[:, :]", r"2 axes are indexed, but the shape \[8\] has 1"),
        ("r[1:3]", r"tiles are indexed with"),
        ("r.reshape(4, 4)", r"reshape cannot turn shape \[8\] into \[4, 4\]"),
        ("r.T", r"only tiles of two or more axes"),
        ("tl.permute(r[:, None], (0, 0))", r"\[0, 0\] is not a permutation"),
        ("tl.broadcast_to(r, (4,))", r"does not broadcast to \[4\]"),
        ("tl.broadcast_to(r, (8, 8))", r"insert axes"),
        ("tl.expand_dims(r, 3)", r"invalid axis 3"),
        ("tl.join(r, f)", r"tl.join takes tiles of one type"),
        ("tl.split(r)", r"needs a last axis of size 2"),
        ("tl.cat(r, A)", r"tiles of one type and shape"),
        ("tl.arange(0, 12)", r"12 elements, which is no power of two"),
        ("tl.arange(0, x)", r"the end of tl.arange must be a compile-time integer, is a run-time value of type int32"),
        ("tl.arange(4, 4)", r"is empty"),
        ("tl.zeros((x, 4), tl.float32)", r"extent 0 of a shape must be a compile-time integer"),
        ("tl.zeros((3,), tl.float32)", r"extents must be powers of two"),
        ("tl.zeros((2048, 1024), tl.float32)", r"has 2097152 elements"),
        ("tl.zeros((4,), 'fp32')", r"a dtype such as tl.float32 is needed"),
        ("tl.full((4,), r, tl.int32)", r"tl.full takes a scalar"),
        ("tl.full((4,), float('inf'), tl.int32)", r"inf has no value as int32"),
        ("tl.program_id(3)", r"program_id axis must be 0, 1, or 2 but got 3"),
        ("tl.program_id(0.0)", r"program_id axis must be 0, 1, or 2 but got 0.0"),
        ("tl.sum(x)", r"a reduction needs a tile"),
        ("tl.sum(r, 1)", r"axis 1 is out of range for a tile of shape \[8\]"),
        ("tl.sum(r, x)", r"axis must be a compile-time integer"),
        ("tl.reduce(r, 0, tl.sigmoid)", r"sigmoid\(\): too many positional arguments"),
        ("tl.reduce(r, 0, tl.maximum)", r"a @jit function is needed"),
        ("tl.reduce((r, r[:4]), 0, tl.cdiv)", r"tiles are indexed"),
        ("tl.cumsum(r, 2)", r"axis 2 is out of range"),
        ("tl.exp(r)", r"tl.exp takes fp32 or fp64, not int32"),
        ("tl.exp(f.to(tl.float16))", r"tl.exp takes fp32 or fp64, not fp16"),
        ("tl.sqrt_rn(f.to(tl.float64))", r"tl.sqrt_rn takes fp32"),
        ("tl.fma(r, r, r)", r"tl.fma takes floats"),
        ("tl.fdiv(r, r)", r"tl.fdiv takes floats"),
        ("tl.clamp(r, 1, 2)", r"tl.clamp takes floats"),
        ("tl.umulhi(f, f)", r"tl.umulhi takes"),
        ("f.to(tl.int32, bitcast=True).to(tl.int16, bitcast=True)", r"cannot bitcast int32 \(32 bits\) to int16"),
        ("f.to(5)", r"a cast needs a dtype"),
        ("f.to(tl.float64, fp_downcast_rounding='rtz')", r"does not apply to a cast from fp32 to fp64"),
        ("f.to(tl.float16, 'up')", r"it is \"rtne\" or \"rtz\""),
        ("p.to(tl.int32)", r"cannot cast pointer<fp32> to int32"),
        ("f.to(tl.float8e5) + 1", r"there is no arithmetic on fp8e5"),
        ("min(1.0, float('nan'))", r"min\(\) of NaN or -0.0"),
        ("max(x)", r"takes two or more values"),
        ("float(x)", r"float\(\) does not take run-time values"),
        ("int(f)", r"use x.to\(tl.int32\)"),
        ("tl.dot(A, A[None])", r"2 axes, or of more"),
        ("tl.dot(A, x)", r"tl.dot multiplies tiles"),
        ("tl.dot(A, A.to(tl.float32))", r"tl.dot does not take fp16 and fp32"),
        ("tl.dot(A, tl.zeros((32, 16), tl.float16))", r"K is 16 and 32"),
        ("tl.dot(A, A, tl.zeros((16, 16), tl.bfloat16))", r"the accumulator of tl.dot must be <\[16, 16\], fp32>"),
        (
            "tl.dot(A, A, tl.zeros((16, 16), tl.float16), out_dtype=tl.float32)",
            r"accumulator of tl.dot must be <\[16, 16\], fp32>",
        ),
        ("tl.dot(A, A, out_dtype=tl.bfloat16)", r"cannot give bf16"),
        ("tl.dot(A, A, input_precision='fast')", r"input_precision cannot be 'fast'"),
        ("tl.dot(A, A, input_precision='ieee', allow_tf32=True)", r"not both"),
        ("tl.dot(r[:, None], r[None, :])", r"tl.dot does not take int32"),
        ("tl.multiple_of(r, (8, 8))", r"one number for each of the 1 axes"),
        ("tl.multiple_of(r, x)", r"compile-time integers"),
    ],
)
def test_refused(body: str, message: str) -> None:
    fn = kernel(f"r = tl.arange(0, 8)\nA = tl.zeros((16, 16), tl.float16)\n{body}", "p, x, u, f")
    with pytest.raises(CompilationError, match=message) as caught:
        compile_kernel(fn, p="*fp32", x="i32", u="u32", f="fp32")
    assert caught.value.location is not None
    assert caught.value.location.line == 5
