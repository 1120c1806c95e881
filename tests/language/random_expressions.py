"""What random kernels compute: expressions over elements, by kind, and the functions that their kernels call."""

PRELUDE = """
@kp.jit
def scaled(x, by=3):
    return x * by + 1


@kp.jit
def ordered(x, y):
    if x.dtype.is_floating():
        return x, y
    return y, x


@kp.jit
def chosen(flag, x, y):
    if flag > 2:
        return x
    return y


@kp.jit
def parity(a, b):
    return a + b - (a & b) * 2


@kp.jit
def larger(a, i, b, j):
    keep = (a > b) | ((a == b) & (i < j))
    return tl.where(keep, a, b), tl.where(keep, i, j)


@kp.jit
def compose(a, b, c, d):
    return a * c, b * c + d
"""

# x and y are operands of one kind that broadcast; y may be a number
EXACT = {
    "int": [
        "x + y", "x - y", "y - x", "x * y", "x & y", "x | y", "x ^ y", "~x", "-x", "x << (y & 7)", "x >> (y & 7)",
        "tl.maximum(x, y)", "tl.minimum(x, y)", "tl.abs(x.to(tl.int32))", "x.to(tl.int32) // ((x.to(tl.int32) & 15) - 17)",
        "x.to(tl.int16) % ((y & 7) + 1).to(tl.int16)", "x.to(tl.uint32) // 7", "x.to(tl.int64) % 5", "x.to(tl.int8) // 3",
        "tl.cdiv(x.to(tl.int32) & 255, 8)", "scaled(x)", "scaled(x, by=y)", "x.to(tl.int8)", "x.to(tl.uint8)", "x.to(tl.int16)",
        "x.to(tl.int32)", "x.to(tl.uint32)", "x.to(tl.int64)", "x.to(tl.uint16)", "x.to(tl.uint64)", "tl.zeros_like(x) + y",
        "tl.umulhi(x.to(tl.uint32), (x + y).to(tl.uint32))", "tl.umulhi(x.to(tl.int64), x.to(tl.int64) ^ 3)", "chosen(n, x, (x + y).to(x.dtype))",
        "tl.where(x > y, x, y)", "tl.where(n > 2, x, y)", "x.to(tl.int32, bitcast=True) if x.dtype == tl.uint32 else x",
    ],
    "float": [
        "x + y", "x - y", "y - x", "x * y", "x / (tl.abs(x) + 0.5)", "-x", "tl.abs(x)", "tl.maximum(x, y)", "tl.minimum(x, y)",
        "tl.sqrt(tl.abs(x).to(tl.float32))", "tl.sqrt_rn(tl.abs(x).to(tl.float32))", "tl.clamp(x.to(tl.float32), -2.0, 3.0)",
        "tl.floor(x.to(tl.float32))", "tl.ceil(x.to(tl.float32))", "scaled(x)", "tl.fma(x.to(tl.float32), 0.5, 1.0)",
        "tl.div_rn(x.to(tl.float32), 3.0)", "x.to(tl.float16)", "x.to(tl.bfloat16)", "x.to(tl.float32)", "x.to(tl.float64)",
        "tl.where(x <= y, x, y)", "tl.where(n > 2, x, y)", "chosen(n, x, (x - y).to(x.dtype))",
    ],
    "bool": ["x & y", "x | y", "x ^ y", "~x", "tl.where(n > 2, x, y)"],
}  # fmt: skip
ROUNDED = [
    "tl.exp(tl.clamp(x, -3.0, 3.0))", "tl.exp2(tl.clamp(x, -3.0, 3.0))", "tl.log(tl.abs(x) + 0.5)", "tl.log2(tl.abs(x) + 0.5)",
    "tl.sigmoid(x)", "tl.math.tanh(x)", "tl.erf(x)", "tl.rsqrt(tl.abs(x) + 0.5)", "tl.sin(tl.clamp(x, -3.0, 3.0))",
    "tl.cos(tl.clamp(x, -3.0, 3.0))", "x * 0.5 + y", "tl.clamp(x, -2.0, 2.0) * tl.clamp(y, -2.0, 2.0)", "x / (tl.abs(x) + 1)",
]  # fmt: skip
CONVERSIONS = {
    ("int", "float"): [
        "((x.to(tl.int32) & 0x7FFFFF) | 0x40000000).to(tl.float32, bitcast=True)", "(x.to(tl.int8) & 0x77).to(tl.float8e5, bitcast=True).to(tl.float32)",
        "(x.to(tl.uint8) & 0x77).to(tl.float8e4nv, bitcast=True).to(tl.float16)","x.to(tl.float32)", "x.to(tl.float64)", "x.to(tl.float16)", "x.to(tl.bfloat16)", "x / 4", "x * 0.5"],
    ("float", "int"): [
        *(f"tl.clamp(tl.where(x == x, x, 0).to(tl.float32), -200.0, 200.0).to(tl.{kind}).to(tl.uint8, bitcast=True)" for kind in ("float8e5", "float8e4nv")),
        "(tl.where(x == x, x, 0).to(tl.float64) + 0.0).to(tl.int64, bitcast=True)",
        *(f"tl.clamp(tl.where(x == x, x, 0).to(tl.float32), -100.0, 100.0).to(tl.{kind})" for kind in ("int8", "int32", "int64"))],
    ("int", "bool"): ["x < y", "x == y", "x >= y", "x != y", "x > y", "x <= y", "x.to(tl.int1)"],
    ("float", "bool"): ["x < y", "x == y", "x >= y", "x != y", "x > y", "x <= y"],
    ("bool", "int"): ["x.to(tl.int32)", "x.to(tl.uint8)", "x.to(tl.int64) + 1", "x + 1"],
    ("bool", "float"): ["x.to(tl.float32)", "tl.where(x, 1.5, -0.25)"],
}  # fmt: skip
