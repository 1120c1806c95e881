"""Statements that do not branch: assignments, expressions, assertions."""

from __future__ import annotations

import ast
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.frontend import semantic
from kernelpack.frontend.calls import Calls
from kernelpack.frontend.scope import assign_name, describe_type, tensors_in


class Statements(Calls):
    """Visits simple statements."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring, or ...
            self.visit(node.value)

    def visit_Pass(self, node: ast.Pass) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        self.check(node.test, node.msg)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        names = {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        if names and names <= self.declared:
            self.require_constexpr(node.targets[0], value)
        else:
            value = self.materialise(value)
        for target in node.targets:
            self.assign(target, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise CompilationError("only variables can be assigned to", cure="store through a pointer with tl.store")
        current = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = self.visit(ast.copy_location(ast.BinOp(current, node.op, node.value), node))
        self.assign(node.target, self.materialise(value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """`x: tl.constexpr` without a value holds for the assignment that follows; other annotations mean nothing."""
        is_constexpr = ast.unparse(node.annotation).split(".")[-1].strip("'\"") == "constexpr"
        if node.value is None:
            if is_constexpr and isinstance(node.target, ast.Name):
                self.declared.add(node.target.id)
            return
        value = self.visit(node.value)
        if is_constexpr:
            self.require_constexpr(node.target, value)
        else:
            value = self.materialise(value)
        self.assign(node.target, value)

    def require_constexpr(self, target: ast.expr, value: Any) -> None:
        if next(tensors_in(value), None) is not None:
            raise CompilationError(
                f"`{ast.unparse(target)}: constexpr` needs a compile-time value, got {describe_type(value)}",
                cure="leave the annotation out, or make what it depends on tl.constexpr",
            )

    def materialise(self, value: Any) -> Any:
        """A number assigned to a variable becomes a run-time value, so that it has a type and may change in loops."""
        if semantic.is_number(value):
            return semantic.to_tensor(self.builder, value)
        if type(value) is tuple:
            return tuple(self.materialise(entry) for entry in value)
        return value

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            assign_name(value, target.id)
            self.scope[target.id] = value
            self.assigned_at[target.id] = target
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target.elts, value)
        elif isinstance(target, ast.Subscript):
            raise CompilationError(
                "elements cannot be assigned to", cure="store to memory with tl.store, or choose with tl.where"
            )
        else:
            raise CompilationError(f"`{ast.unparse(target)}` cannot be assigned to")

    def unpack(self, targets: list[ast.expr], value: Any) -> None:
        if not isinstance(value, tuple):
            raise CompilationError(
                f"{describe_type(value)} cannot be unpacked into {len(targets)} variables", cure="only tuples can"
            )
        if len(value) != len(targets):
            raise CompilationError(f"{len(value)} values cannot be unpacked into {len(targets)} variables")
        for target, entry in zip(targets, value, strict=True):
            self.assign(target, entry)
