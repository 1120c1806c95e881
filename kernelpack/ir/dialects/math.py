"""math: elementary functions of floats (and `absi`)."""

from kernelpack.ir.dialect import Dialect, OpDef, Trait, row, same_as

UNARY = (
    "absf", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log1p", "log2", "rsqrt", "sin", "sqrt", "tanh",
)  # fmt: skip


def _function(name: str, operands: str, format: str) -> OpDef:
    return row(
        f"math.{name}",
        operands,
        traits=[Trait.PURE, Trait.ELEMENTWISE, Trait.SAME_TYPE],
        format=format,
        infer=same_as(0),
    )


MATH = Dialect(
    "math",
    [
        *(_function(name, "operand: float", "$operand : type($result)") for name in UNARY),
        _function("absi", "operand: int", "$operand : type($result)"),
        _function("fma", "a: float, b: float, c: float", "$a, $b, $c : type($result)"),
    ],
)
