"""Statements that do not branch: assignments, expressions, assertions."""

from __future__ import annotations

import ast
import warnings
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.frontend.calls import Calls
from kernelpack.frontend.scope import assign_name, describe_type, tensors_in, with_parts
from kernelpack.kernel.source import last_word
from kernelpack.semantics import operators


class Statements(Calls):
    """Visits simple statements."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring, or ...
            self.unused_call = node.value
            self.visit(node.value)

    def visit_Pass(self, node: ast.Pass) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        self.check(node.test, node.msg, may_be_run_time=True)

    def visit_Raise(self, node: ast.Raise) -> None:
        what = "an exception" if node.exc is None else f"`{ast.unparse(node.exc)}`"
        raise CompilationError(f"the kernel raises {what} where its compile-time values lead")

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self.assign(target, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise CompilationError("only variables can be assigned to", cure="store through a pointer with tl.store")
        current = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = self.visit(ast.copy_location(ast.BinOp(current, node.op, node.value), node))
        self.assign(node.target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """`x: tl.constexpr` without a value holds for the assignment that follows; other annotations mean nothing."""
        is_constexpr = last_word(ast.unparse(node.annotation)) == "constexpr"
        if node.value is None:
            if is_constexpr and isinstance(node.target, ast.Name):
                self.declared.add(node.target.id)
            return
        self.assign(node.target, self.visit(node.value), is_constexpr=is_constexpr)

    def materialise(self, value: Any) -> Any:
        """A number assigned to a variable becomes a run-time value, so that it has a type and may change in loops."""
        if operators.is_number(value):
            return operators.to_tensor(self.builder, value)
        return with_parts(value, map(self.materialise, value)) if isinstance(value, tuple) else value

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.assign(node.target, self.visit(node.value))
        return self.visit(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))

    def assign(self, target: ast.expr, value: Any, *, is_constexpr: bool = False) -> None:
        """Gives variables their values: those annotated as tl.constexpr keep compile-time values, in others numbers become
        run-time values. Kernels in use annotate run-time values, too: these are warned of."""
        if isinstance(target, ast.Name):
            if not (is_constexpr or target.id in self.declared):
                value = self.materialise(value)
            elif next(tensors_in(value), None) is not None:
                warnings.warn(
                    f"{self.location(target).source}: `{target.id}: constexpr` is {describe_type(value)}, which only running tells",
                    stacklevel=2,
                )
            assign_name(value, target.id)
            self.scope[target.id] = value
            self.assigned_at[target.id] = target
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target.elts, value, is_constexpr)
        elif isinstance(target, ast.Attribute):
            raise CompilationError(
                f"`{ast.unparse(target)}` cannot be assigned to: values do not change",
                cure="make a changed copy: tl.aggregate_replace(value, field=...)",
            )
        elif isinstance(target, ast.Subscript):
            raise CompilationError(
                "elements cannot be assigned to", cure="store to memory with tl.store, or choose with tl.where"
            )
        else:
            raise CompilationError(f"`{ast.unparse(target)}` cannot be assigned to")

    def unpack(self, targets: list[ast.expr], value: Any, is_constexpr: bool = False) -> None:
        if not isinstance(value, tuple):
            raise CompilationError(
                f"{describe_type(value)} cannot be unpacked into {len(targets)} variables", cure="only tuples can"
            )
        starred = next((place for place, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
        if starred is not None and len(value) >= len(targets) - 1:
            rest = len(value) - len(targets) + 1
            value = (*value[:starred], tuple(value[starred : starred + rest]), *value[starred + rest :])
        problem = f"{len(value)} values cannot be unpacked into {len(targets)} variables"
        if len(value) < len(targets):
            raise CompilationError(problem)
        if len(value) > len(targets):  # kernels in use have it
            warnings.warn(f"{self.location(targets[0]).source}: {problem}: the last ones are dropped", stacklevel=2)
            value = value[: len(targets)]
        for target, entry in zip(targets, value, strict=True):
            self.assign(target.value if isinstance(target, ast.Starred) else target, entry, is_constexpr=is_constexpr)
