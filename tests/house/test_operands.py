"""Operands have names: by the rows of the dialect tables, by views, or by unpacking them. Nobody reaches for one by its number."""

from __future__ import annotations

import ast
from pathlib import Path

import kernelpack
from tests.house.layers import modules

ROOT = Path(kernelpack.__file__).parent

DEFINITIONS = {
    "ir.core": "Operation.operand is the only one",
    "ir.views": "views say which operands a loop has in which places",
    "ir.dialects": "rows infer and check types of operands in their order",
    "backends.gpu.dialect": "rows",
    "backends.cuda.machine.dialect": "rows",
}
"""Modules, or folders of them, that give operands their names, and so must know where they stand."""


def operands_by_number(text: str) -> list[int]:
    """Returns the lines of a module on which it indexes, slices or sets operands by a number that it writes down."""
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Subscript(value=ast.Attribute(attr="operands"), slice=place) if _has_number(place):
                found.append(node.lineno)
            case ast.Call(func=ast.Attribute(attr="set_operand"), args=[place, _]) if _has_number(place):
                found.append(node.lineno)
    return found


def _has_number(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Constant) and isinstance(node.value, int) for node in ast.walk(tree))


def test_operands_are_named() -> None:
    found = [
        f"{name}:{line}"
        for name, path in modules(ROOT).items()
        if not any(name == home or name.startswith(home + ".") for home in DEFINITIONS)
        for line in operands_by_number(path.read_text())
    ]
    assert found == []


def test_numbers_are_found() -> None:
    numbered = ["op.operands[0]", "op.operands[-1].type", "op.operands[3:]", "op.operands[3 + index]", "op.set_operand(1, x)"]
    assert [operands_by_number(line) for line in numbered] == [[1]] * len(numbered)
    named = ["lhs, rhs = op.operands", 'operand(op, "ptr")', "op.operand", "op.operands[index]", "op.set_operand(index, x)"]
    assert [operands_by_number(line) for line in named] == [[]] * len(named)
