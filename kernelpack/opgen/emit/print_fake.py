"""Prints a sliced host function as the Python of a fake kernel, readable and without kernelpack."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence

from kernelpack.dtypes import DType
from kernelpack.opgen.host.ir import (
    DTYPE,
    FLOAT,
    NONE,
    Allocate,
    Apply,
    Assign,
    Check,
    Const,
    Declare,
    Expr,
    For,
    If,
    Let,
    Ref,
    Return,
    Statement,
    walk_expr,
)
from kernelpack.opgen.host.ops import OPS, render
from kernelpack.opgen.host.slice_fake import Symbols, slice_fake
from kernelpack.opgen.stated.schema import Schema
from kernelpack.opgen.stated.space import SameAs
from kernelpack.opgen.variants.plan import OpPlan

RUNTIME = (
    *(
        "both",
        "broadcast_shapes",
        "broadcast_strides",
        "cdiv",
        "check",
        "check_dtype",
        "check_output",
        "check_same_device",
        "collapse_batches",
        "collapse_rows",
        "either",
        "empty",
    ),
    *("empty_strided", "next_power_of_2", "num_threads", "product", "running", "same_shape", "strides_like"),
)
"""The functions of host_runtime.py that fakes may call."""


def print_fakes(plans: Sequence[OpPlan], namespace: str) -> str:
    """Returns the functions of fakes.py, two blank lines apart, with the imports they need in front."""
    functions = [text for plan in plans for text in _fake(plan, namespace)]
    code = "\n\n\n".join(functions)
    used = [name for name in RUNTIME if re.search(rf"\b{name}\(", code)]
    imports = ["import math"] if "math." in code else []
    imports.append("import torch")
    return "\n".join(imports) + f"\n\nfrom .host_runtime import {', '.join(used)}\n\n\n{code}\n"


def _fake(plan: OpPlan, namespace: str) -> list[str]:
    schema = plan.host.schema
    printer = FakePrinter(plan)
    names = [variable.name for variable in plan.host.arguments]
    passed = ", ".join(f"{name}={name}" if a.keyword_only else name for name, a in zip(names, schema.arguments, strict=True))
    lines = [f"def {schema.name}({', '.join(_parameters(schema, names))}):", f'    """{namespace}::{schema}"""']
    lines += [f'    with running("{namespace}::{schema.name}"):', *printer.body()]
    functions = ["\n".join(lines)]
    out = schema.out_variant()
    if out is not None:
        outs = [argument.name for argument in out.arguments[len(schema.arguments) :]]
        results = outs[0] + "_expected" if len(outs) == 1 else ", ".join(f"{name}_expected" for name in outs)
        checks = [f'        check_output("{name}", {name}, {name}_expected)' for name in outs]
        lines = [f"def {schema.name}_out({', '.join(_parameters(out, [*names, *outs]))}):", f'    """{namespace}::{out}"""']
        lines += [f"    {results} = {schema.name}({passed})"]
        lines += [f'    with running("{namespace}::{schema.name}.out"):', *checks]
        functions.append("\n".join(lines))
    return functions


def _parameters(schema: Schema, names: Sequence[str]) -> list[str]:
    """Returns the parameters of a Python function for a schema, with its defaults."""
    found: list[str] = []
    for argument, name in zip(schema.arguments, names, strict=True):
        if argument.keyword_only and "*" not in found:
            found.append("*")
        found.append(f"{name}={argument.default!r}" if argument.has_default else name)
    return found


class FakePrinter:
    """Prints one op's fake kernel."""

    def __init__(self, plan: OpPlan) -> None:
        self.plan = plan
        self.symbols = Symbols.of(plan.host)
        self.lines: list[str] = []
        self.depth = 2

    def body(self) -> list[str]:
        """Returns the indented lines below `with running(...)`."""
        host = self.plan.host
        names = {argument.name: variable.name for argument, variable in zip(host.schema.arguments, host.arguments, strict=True)}
        tensors = [f"{argument.name}={names[argument.name]}" for argument in host.schema.tensors]
        if len(tensors) > 1:
            self.emit(f"check_same_device({', '.join(tensors)})")
        for argument in host.schema.tensors:
            entries = self.plan.space.dtypes[argument.name]
            dtypes = ", ".join(
                f"{names[entry.argument]}.dtype" if isinstance(entry, SameAs) else _dtype(entry) for entry in entries
            )
            self.emit(f'check_dtype("{argument.name}", {names[argument.name]}, ({dtypes}{"," if len(entries) == 1 else ""}))')
        self.statements(slice_fake(host))
        return self.lines

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def block(self, head: str, statements: Sequence[Statement]) -> None:
        self.emit(head)
        self.depth += 1
        self.statements(statements)
        if not [statement for statement in statements if not (isinstance(statement, Declare) and statement.initial is None)]:
            self.emit("pass")
        self.depth -= 1

    def statements(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            match statement:
                case Let(variable, value) | Assign(variable, value):
                    self.emit(f"{variable.name} = {self.expr(value)}")
                case Declare(variable, initial) if initial is not None:
                    self.emit(f"{variable.name} = {self.expr(initial)}")
                case Check(condition, message):
                    self.emit(f"check({self.expr(condition)}, lambda: {self.message(message)})")
                case Allocate(variable, shape, strides, dtype, device):
                    function = "empty" if strides is None else "empty_strided"
                    layout = [shape] if strides is None else [shape, strides]
                    self.emit(
                        f"{variable.name} = {function}({', '.join(self.expr(part) for part in (*layout, dtype, device))})"
                    )
                case If(condition, then, orelse):
                    self.block(f"if {self.expr(condition)}:", then)
                    if orelse:
                        self.block("else:", orelse)
                case For(counter, start, stop, step, body):
                    bounds = f"{self.expr(start)}, {self.expr(stop)}, {self.expr(step)}"
                    self.block(f"for {counter.name} in range({bounds}):", body)
                case Return(values):
                    self.emit(f"return {', '.join(self.expr(value) for value in values)}".rstrip())

    def message(self, parts: Sequence[str | Expr]) -> str:
        """Returns an f-string, or a plain string if no value is in it."""
        if all(isinstance(part, str) for part in parts):
            return _quoted("".join(part for part in parts if isinstance(part, str)))
        pieces: list[ast.expr] = []
        for part in parts:
            if isinstance(part, str):
                pieces.append(ast.Constant(part))
            else:
                value = ast.parse(self.expr(part), mode="eval").body
                if OPS["shape"].python.format("x")[1:] in self.expr(part):  # torch.Size prints as a tuple here
                    value = ast.Call(ast.Name("tuple"), [value], []) if self.expr(part).endswith(".shape") else value
                pieces.append(ast.FormattedValue(value, -1))
        return ast.unparse(ast.JoinedStr(pieces))

    def expr(self, expr: Expr) -> str:
        return render(expr, self.leaf, "python")

    def leaf(self, expr: Expr) -> str:
        if isinstance(expr, Ref):
            return expr.variable.name
        if isinstance(expr, Const):
            if expr.type == DTYPE:
                return _dtype(expr.value)
            if expr.type == FLOAT and not math.isfinite(expr.value):
                return f'float("{expr.value}")'
            return "None" if expr.type == NONE else _quoted(expr.value) if isinstance(expr.value, str) else repr(expr.value)
        match expr:
            case Apply("and" | "or", (left, right)) if self.symbols.depends(left):  # `and` would ask a symbol for its value
                one, other = self.expr(left), self.expr(right)
                if _may_fail(right):
                    return f"{'both' if expr.op == 'and' else 'either'}({one}, lambda: {other})"
                return f"(({one}) {'&' if expr.op == 'and' else '|'} ({other}))"
            case Apply("ints" | "floats", ()):
                return "()"
            case Apply("not", (Apply("is_none", (asked,)),)):
                return f"{self.expr(asked)} is not None"
            case Apply("not", (asked,)) if self.symbols.depends(asked):
                return f"torch.sym_not({self.expr(asked)})"
        return ""


_MAY_FAIL = {"floordiv", "mod", "truediv", "cdiv", "pow_float", "sqrt", "log", "log2", "size", "stride", "at"}
"""What raises for some operands: a division by zero, a dimension that is not there."""


def _may_fail(expr: Expr) -> bool:
    return any(isinstance(part, Apply) and part.op in _MAY_FAIL for part in walk_expr(expr))


def _dtype(dtype: DType | None) -> str:
    return "None" if dtype is None else f"torch.{dtype.name}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
