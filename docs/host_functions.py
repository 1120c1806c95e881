"""Writes docs/host-functions.md: what a host function may contain, and what that becomes.

Every row is an example that this script translates, or that it sees refused. Run: make docs.
"""

from __future__ import annotations

import inspect
import linecache
from pathlib import Path
from typing import Any

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import HostFunctionError
from kernelpack.opgen.host import suggestions
from kernelpack.opgen.host.calls import Calls
from kernelpack.opgen.host.ir import Allocate, Apply, Const, Expr, HostFunction, Let, Ref, walk_expr, walk_statements
from kernelpack.opgen.host.ops import render
from kernelpack.opgen.host.translate import translate
from kernelpack.opgen.stated.schema import parse_schema

PAGE = Path(__file__).with_name("host-functions.md")
ARGUMENTS = "Tensor x, Tensor? bias, int n, int m, float eps, bool flag, int[] dims"

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "Numbers": (
        "n + m", "n - m", "n * m", "n // m", "n % m", "n / m", "n ** 2", "eps ** 0.5", "-n", "~n", "n & m", "n | m", "n ^ m",
        "n << m", "n >> m", "min(n, m)", "max(n, m)", "abs(n)", "int(eps)", "float(n)", "bool(n)", "math.sqrt(eps)",
        "math.exp(eps)", "math.log(eps)", "math.log2(eps)", "math.floor(eps)", "math.ceil(eps)", "kp.cdiv(n, m)",
        "kp.next_power_of_2(n)", "kp.num_threads()",
    ),
    "Conditions": (
        "n == m", "n != m", "n < m", "n <= m", "n > m", "n >= m", "flag and n > 0", "flag or n > 0", "not flag",
        "n if flag else m", "bias is None", "x.shape == (n, m)",
    ),
    "Tensors": (
        "x.shape[0]", "x.size(0)", "x.stride(0)", "x.numel()", "x.dim()", "x.is_contiguous()", "x.is_cuda",
        "x.device.type == 'cuda'", "x.element_size()", "x.dtype == torch.float32", "x.device == x.device",
    ),
    "Shapes and strides: tuples of integers": (
        "x.shape", "x.stride()", "(n, m)", "(*x.shape[:-1], n)", "x.shape[:-1]", "dims[0]", "len(dims)", "math.prod(x.shape)",
        "kp.broadcast_strides(x, (n, m))", "kp.strides_like(x, (n, m))", "kp.broadcast_shapes(x.shape, (n, m))",
        "kp.collapse_rows(x, ndims=2)[0][0]", "kp.collapse_rows(x, ndims=2)[1][0]", "kp.collapse_batches(x, ndims=2)[0][0]",
    ),
}  # fmt: skip
"""What an author writes, by subject."""

STATEMENTS: dict[str, str] = {
    "Assignment, also of several names": "rows, columns = x.shape",
    "Augmented assignment": "n += 1",
    "A check with a message": 'kp.check(n > 0, f"n is {n}, expected a positive number")',
    "The same as `assert`": "assert n > 0, 'n must be positive'",
    "The same as `raise`": "if n < 0:\n    raise ValueError(f'n is {n}')",
    "A branch; names that are used after it are assigned in both parts": "if n > m:\n    k = n\nelse:\n    k = m",
    "A loop over `range`, of numbers alone": "for i in range(n):\n    m = m + i",
    "An allocation": "y = kp.empty((n, m), x.dtype, x.device)",
    "An allocation with strides": "y = kp.empty_strided((n, m), (1, n), x.dtype, x.device)",
    "An allocation like a tensor": "y = kp.empty_like(x, dtype=torch.float32)",
    "A call of a Python function that consists of such code": "k = half_of(n)",
    "What is known of an optional tensor in a branch": "if bias is not None:\n    kp.check(bias.dim() == 1, 'bias has one dimension')",
    "A launch": "kernel[(kp.cdiv(n, 128),)](x, n)",
    "A launch whose grid follows the config": "kernel[lambda meta: (kp.cdiv(n, meta['BLOCK']),)](x, n)",
    "A launch with a compile option": "kernel[(n,)](x, n, num_warps=8)",
}

REFUSED: dict[str, str] = {
    "a loop that goes over something else": "for size in x.shape:\n    n = n + size",
    "`while`": "while n > 1:\n    n = n // 2",
    "`try`": "try:\n    n = n // m\nexcept ZeroDivisionError:\n    n = 0",
    "a comprehension": "sizes = [size for size in dims]",
    "a tensor's values": "n = x.item()",
    "writing to a tensor": "x[0] = n",
    "computing with tensors": "y = x + x",
    "an operation of torch": "y = torch.zeros(n)",
    "a view": "y = x.view(n, m)",
    "an allocation in a loop": "for i in range(n):\n    y = kp.empty_like(x)",
    "a launch in a loop": "for i in range(n):\n    kernel[(1,)](x, i)",
    "the truth of a tensor that may be None": "if bias:\n    n = 0",
    "a tensor that may be None, not handled": "n = bias.shape[0]",
    "a name that only one branch assigns": "if flag:\n    k = n\nm = k",
    "a call by keyword arguments": "kernel[(1,)](**{'x': x, 'n': n})",
}


@kp.jit
def kernel(x: Any, n: Any, BLOCK: tl.constexpr = 1) -> None:
    """What the examples launch."""
    tl.store(x, n)


def half_of(n: Any) -> Any:
    """A Python function that examples call."""
    return n // 2


def translated(body: str) -> HostFunction:
    """Returns the host IR of a host function with this body, which then launches a kernel and returns."""
    import math

    import torch

    names = [argument.split()[1] for argument in ARGUMENTS.split(", ")]
    indented = "".join(f"    {line}\n" for line in body.split("\n"))
    text = f"def example({', '.join(names)}):\n{indented}    out = kp.empty_like(x)\n    kernel[(1,)](out, 0)\n    return out\n"
    file = f"<host function {abs(hash(body))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"kp": kp, "math": math, "torch": torch, "kernel": kernel, "half_of": half_of}
    exec(compile(text, file, "exec"), scope)
    return translate(scope["example"], parse_schema(f"example({ARGUMENTS}) -> Tensor", None))


def value_of(expression: str) -> Expr:
    """Returns what an expression becomes. A number is found where a kernel gets it, a shape where a tensor is allocated."""
    try:
        host = translated(f"kernel[(1,)](x, {expression})")
        found = next(iter(host.launches)).arguments["n"]
    except (HostFunctionError, KeyError):  # a tuple is passed on part by part
        host = translated(f"kernel[(1,)](kp.empty({expression}, x.dtype, x.device), 0)")
        found = next(statement.shape for statement in walk_statements(host.body) if isinstance(statement, Allocate))
    lets = {one.variable: one.value for one in walk_statements(host.body) if isinstance(one, Let)}
    return _unfolded(found, lets)


def _unfolded(expr: Expr, lets: dict[Any, Expr]) -> Expr:
    if isinstance(expr, Ref):
        return _unfolded(lets[expr.variable], lets) if expr.variable in lets else expr
    if isinstance(expr, Apply):
        return Apply(expr.op, tuple(_unfolded(operand, lets) for operand in expr.operands), expr.type)
    return expr


def leaf(expr: Expr) -> str:
    """Returns a constant or a variable as both languages write it; an empty text where the table of operations decides."""
    if isinstance(expr, Ref):
        return expr.variable.name
    return str(expr.value) if isinstance(expr, Const) else ""


def operations_of(expr: Expr) -> set[str]:
    return {part.op for part in walk_expr(expr) if isinstance(part, Apply)}


def cell(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`" if "`" not in text else text


def block(text: str) -> str:
    """Returns lines of code in one cell of a table."""
    return "<br>".join(cell(line.replace("    ", "\N{NO-BREAK SPACE}" * 4)) for line in text.split("\n"))


def expressions() -> str:
    parts = []
    for title, examples in EXPRESSIONS.items():
        rows = [f"### {title}", "", "| you write | C++ |", "| - | - |"]
        for example in examples:
            rows.append(f"| {cell(example)} | {cell(render(value_of(example), leaf, 'cpp'))} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def statements() -> str:
    rows = ["| statement | for example |", "| - | - |"]
    for what, example in STATEMENTS.items():
        translated(example)  # raises where it has no translation
        rows.append(f"| {what} | {block(example)} |")
    return "\n".join(rows)


def refusal_of(body: str) -> HostFunctionError:
    """Returns the error that a body raises. Raises AssertionError where it has a translation."""
    try:
        translated(body)
    except HostFunctionError as error:
        return error
    raise AssertionError(f"this has a translation:\n{body}")


def refusals() -> str:
    rows = ["| what | for example | the error says |", "| - | - | - |"]
    for what, example in REFUSED.items():
        error = refusal_of(example)
        cure = f"; to fix: {error.cure}" if error.cure else ""
        rows.append(f"| {what} | {block(example)} | {error.message}{cure} |".replace("'None'", "None"))
    return "\n".join(rows)


def functions() -> str:
    """Returns the table of kp's functions that a host function may call."""
    rows = ["| function | what it gives |", "| - | - |"]
    for name in sorted(one.removeprefix("call_") for one in dir(Calls) if one.startswith("call_") and hasattr(kp, one[5:])):
        function = getattr(kp, name)
        signature = ", ".join(str(one).partition(":")[0] for one in inspect.signature(function).parameters.values())
        first = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| `kp.{name}({signature})` | {first} |")
    return "\n".join(rows)


def instead() -> str:
    """Returns the table of what torch's functions and methods are replaced by."""
    found: dict[str, list[str]] = {}
    for table, form in ((suggestions._TORCH, "torch.{}"), (suggestions._METHODS, "x.{}"), (suggestions._LANGUAGE, "tl.{}")):
        for name, cure in table.items():
            found.setdefault(cure, []).append(f"`{form.format(name)}`")
    rows = ["| instead of | do this |", "| - | - |"]
    return "\n".join([*rows, *(f"| {', '.join(names)} | {cure} |" for cure, names in found.items())])


HEAD = """# What a host function may contain

A host function checks its arguments, allocates results and launches kernels. This page lists what it may contain, and what each form
becomes. It is made by translating the examples (`make docs`).

A host function is read, not run, when an op is built. It becomes C++, and its part that decides a result's shape, dtype and strides
becomes the op's fake kernel. So it may contain what has a meaning in C++ without Python: numbers, conditions, shapes, allocations
and launches. It computes nothing on tensors: kernels do. Called from Python, the same function runs as it stands.

In the examples `x` is a Tensor, `bias` a Tensor or None, `n` and `m` are integers, `eps` is a float, `flag` a bool, `dims` a list of
integers, `kernel` a kernel.

## Rules

- Parameters have the names and the order of the schema's arguments. Types come from the schema.
- Every path ends in `return`, where the schema has results, and the function launches a kernel somewhere.
- A name has one type. A branch or a loop may change a number, not a number into a tensor.
- Integers have 64 bits. `//` and `%` have Python's meaning. A constant that does not fit is refused.
- Global names are constants: numbers, dtypes, tuples of these, modules, functions and kernels.
- A Python function that is called is translated in place. It returns once, at its end, and does not call itself.
- A value that may be None is asked for first: `if bias is None`.
- A compile-time argument of a kernel is a number, a bool, a dtype or a string.
- A run-time argument is a tensor, a number, None, or a tuple of these. A class that derives from `NamedTuple` gives the parts names, and
  numbers types: `row: tl.int64`. The kernel sees such a tuple as it was passed. Parts are parameters of their own: `strides_row`.
- Sizes may be symbols in torch.compile and torch.export. A shape that is computed from them stays symbolic."""


def page() -> str:
    """Returns the whole page."""
    return (
        "\n\n".join(
            [
                HEAD,
                "## Statements", statements(),
                "## Expressions", expressions(),
                "## Functions of kp", functions(),
                "## What is refused, for example",
                "An error names the file and the line, and says what to do.", refusals(),
                "## What to write instead", instead(),
            ]
        )
        + "\n"
    )  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page())
