"""Branches, loops and returns, as structured control flow.

Compile-time conditions choose a branch here and leave no trace. A run-time `if` becomes scf.if, whose results are the
variables that its branches assign. Where a branch returns, the rest of the function goes into the other branch; where both
may go on, the scf.if also gives a flag that says whether the function has returned, and the rest depends on it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.frontend.merge import Flow, Merge, Path, mergeable
from kernelpack.frontend.scope import Scope, Undefined, describe_type, replace_tensors, same_structure, tensors_in
from kernelpack.frontend.statements import Statements
from kernelpack.ir.core import Block, Region, Value
from kernelpack.kernel.promotion import promote_integers
from kernelpack.kernel.types import dtype, int32, int64, uint64
from kernelpack.kernel.values import tensor
from kernelpack.language import core
from kernelpack.semantics import operators


class ControlFlow(Statements):
    """Visits whole bodies: lists of statements with what branches, repeats and returns."""

    returns_values = True

    # ---- bodies, branches, returns ----

    def visit_body(self, statements: Sequence[ast.stmt], *, last: bool) -> Flow:
        """Generates statements and returns how control leaves them. After the `last` ones of a function it has returned."""
        pending = list(statements)
        while pending:
            statement = pending.pop(0)
            if isinstance(statement, ast.Return):
                with self.at(statement):
                    return self.return_value(statement)
            if not isinstance(statement, ast.If):
                self.visit(statement)
                continue
            with self.at(statement):
                condition = self.condition(statement.test)
                if isinstance(condition, bool):
                    pending = [*(statement.body if condition else statement.orelse), *pending]
                    continue
                flow = self.branch(statement, condition, pending, last)
            if not flow.falls:
                return flow
        return Flow(returned=last, by_end=last)

    def return_value(self, node: ast.Return) -> Flow:
        if self.loop_depth:
            raise CompilationError(
                "Cannot have `return` statements inside `while` or `for` statements in triton's language",
                cure="keep the result in a variable, and return after the loop",
            )
        value = None if node.value is None else self.visit(node.value)
        if value is not None and not self.returns_values:
            raise CompilationError("a kernel returns nothing", cure="store the result with tl.store")
        return Flow(returned=True, value=value)

    def condition(self, node: ast.expr) -> Value | bool:
        """Returns a condition: decided now, or an i1."""
        value = self.visit(node)
        if isinstance(value, core.condition):
            value = value.cond
        if isinstance(value, tensor):
            with self.at(node):
                return operators.scalar_condition(self.builder, value)
        if value is None or isinstance(value, (bool, int, float, str, tuple)):
            return bool(value)
        raise CompilationError(f"{describe_type(value)} is not a condition", cure="compare it: x == ... or x is None")

    def path(self, statements: Sequence[ast.stmt], *, last: bool) -> Path:
        """Generates one side of a branch, apart from what is around it."""
        path = Path(dict(self.scope))
        self.extend(path, statements, last=last)
        return path

    def extend(self, path: Path, statements: Sequence[ast.stmt], *, last: bool) -> None:
        """Generates more statements at the end of a path."""
        outer, self.scope = self.scope, path.scope
        with operators.inside(self.builder, path.block):
            path.flow = self.after(path.flow, statements, last=last)
        path.scope, self.scope = self.scope, outer

    def after(self, flow: Flow, rest: Sequence[ast.stmt], *, last: bool) -> Flow:
        """Generates the statements that come after `flow`, for where it has not returned."""
        if flow.falls:
            return self.visit_body(rest, last=last)
        if flow.returned or not (rest or last):
            return flow
        if not rest and flow.value is None:
            return Flow(returned=True)
        assert flow.flag is not None
        returned = Path(dict(self.scope), flow=Flow(returned=True, value=flow.value))
        return self.join(flow.flag, returned, self.path(rest, last=last))

    def branch(self, node: ast.If, condition: Value, rest: Sequence[ast.stmt], last: bool) -> Flow:
        """Generates a run-time `if`. Unless the flow falls, the statements after it (`rest`) have been generated too."""
        nothing_follows = last and not rest
        paths = [self.path(statements, last=nothing_follows) for statements in (node.body, node.orelse)]
        going_on = [path for path in paths if not path.flow.returned]
        if len(going_on) == 1:
            self.extend(going_on[0], rest, last=last)
            return self.join(condition, *paths)
        flow = self.join(condition, *paths)
        return flow if flow.falls else self.after(flow, rest, last=last)

    def join(self, condition: Value, first: Path, second: Path) -> Flow:
        """Creates the scf.if of two paths and returns how control leaves it. The scope is then the one after it."""
        merge = Merge(self.builder, first, second)
        flows = (first.flow, second.flow)
        returned = all(flow.returned for flow in flows)
        if not returned:
            self.scope = merge.scopes(self.scope, self.line)
        value = None
        ended = [flow.by_end for flow in flows]
        if ended[0] != ended[1] and returned and flows[ended[0]].value is not None:
            value = merge.add_one_sided(flows[ended[0]].value, int(ended[0]))
        elif not any(flow.falls for flow in flows):
            if not mergeable(flows[0].value, flows[1].value, numbers=True):
                raise CompilationError(
                    f"Return type mismatch: the function returns {describe_type(flows[0].value)} on one path and {describe_type(flows[1].value)} "
                    "on another",
                    cure="return values of the same types on all paths, the end of the function included",
                )
            value = merge.add(flows[0].value, flows[1].value)
        elif not flows[0].falls or not flows[1].falls:
            side = 1 if flows[0].falls else 0
            value = merge.add_one_sided(flows[side].value, side)
        flag = None
        if not returned and not all(flow.falls for flow in flows):
            flags = [flow.returned if flow.flag is None else tensor(flow.flag, core.int1) for flow in flows]
            flag = merge.add(*flags, name="returned")
        merge.create(condition)
        return Flow(returned, None if flag is None else flag.handle, value)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test)
        if isinstance(condition, bool):
            return self.visit(node.body if condition else node.orelse)
        paths, values = [], []
        for side in (node.body, node.orelse):
            paths.append(Path({}))
            with operators.inside(self.builder, paths[-1].block):
                values.append(self.visit(side))
        if not mergeable(*values, numbers=True):
            raise CompilationError(
                f"Ternary expression with dynamic condition has inconsistent types: its values are {describe_type(values[0])} and "
                f"{describe_type(values[1])}",
                cure="cast one of them with .to(), or use tl.where",
            )
        merge = Merge(self.builder, *paths)
        value = merge.add(*values)
        merge.create(condition)
        return value

    # ---- loops ----

    def visit_For(self, node: ast.For) -> None:
        self.refuse_else(node)
        bounds = self.visit(node.iter)
        if isinstance(bounds, (core.static_range, tuple)):
            self.unroll(node, bounds)
        elif not isinstance(bounds, core.range):
            raise CompilationError(
                f"a loop cannot run over {describe_type(bounds)}", cure="use range, tl.range, tl.static_range or a tuple"
            )
        elif isinstance(node.target, ast.Name):
            self.for_loop(node, node.target.id, bounds)
        else:
            raise CompilationError("a loop over a range has one variable", cure="for i in range(n):")

    def unroll(self, node: ast.For, values: core.static_range | tuple[Any, ...]) -> None:
        with self.looping(), self.copied(values):
            for value in values:
                self.bind_target(node.target, value)
                self.visit_body(node.body, last=False)
        for name in _assigned_names([ast.Expr(node.target)]):
            self.scope[name] = _counted(node.lineno)

    def for_loop(self, node: ast.For, target: str, bounds: core.range) -> None:
        b = self.builder
        descending = not isinstance(bounds.step, tensor) and bounds.step < 0
        if not isinstance(bounds.step, tensor) and bounds.step == 0:
            raise CompilationError("the step of a loop is 0")
        step = -bounds.step if descending else bounds.step
        limits = [operators.to_tensor(b, value) for value in (bounds.start, bounds.end, step)]
        counter, index = _index_types(limits)
        start, end, by = (operators.cast(b, value, counter) for value in limits)
        # scf.for counts up: a descending loop counts from its end, and takes start + end - counter
        low, high = (end, start) if descending else (start, end)
        loop = _Loop(self, node.body, target)
        block = Block([counter.to_ir()], [target])
        variable = tensor(block.arguments[0], counter)
        with operators.inside(b, block):
            if descending:
                total = operators.arithmetic(b, "+", start, end)
                variable = operators.arithmetic(b, "-", total, variable)
            variable = operators.cast(b, variable, index)
        final = loop.generate(block, {target: variable})
        kept = loop.drop_unchanged([block], final)
        with operators.inside(b, block):
            b.create("scf.yield", kept)
        operands = [low.handle, high.handle, by.handle, *loop.initial]
        op = b.create("scf.for", operands, bounds.attributes, [value.type for value in loop.initial], [Region([block])])
        loop.leave(op.results, node.lineno)

    def visit_While(self, node: ast.While) -> None:
        self.refuse_else(node)
        b = self.builder
        loop = _Loop(self, node.body)
        before, after = Block(), Block()
        outer = self.scope
        self.scope = loop.enter(before)
        with operators.inside(b, before):
            condition = self.condition(node.test)
        self.scope = outer
        if isinstance(condition, bool):
            if condition:
                raise CompilationError("this loop never ends", cure="give it a condition that the body changes")
            return
        final = loop.generate(after, {})
        kept = loop.drop_unchanged([before, after], final)
        with operators.inside(b, before):
            b.create("scf.condition", [loop.settled.get(condition, condition), *before.arguments])
        with operators.inside(b, after):
            b.create("scf.yield", kept)
        kinds = [value.type for value in loop.initial]
        op = b.create("scf.while", loop.initial, None, kinds, [Region([before]), Region([after])])
        loop.leave(op.results, node.lineno)

    @contextmanager
    def looping(self) -> Iterator[None]:
        self.loop_depth += 1
        try:
            yield
        finally:
            self.loop_depth -= 1

    @staticmethod
    def refuse_else(node: ast.For | ast.While) -> None:
        if node.orelse:
            raise CompilationError("a loop has no else", cure="put it after the loop")


def _index_types(bounds: Sequence[tensor]) -> tuple[dtype, dtype]:
    """Returns the type in which a loop counts, and the type of its variable. scf.for compares signed."""
    for value in bounds:
        if value.shape or not value.dtype.is_int():
            raise CompilationError(f"the bounds of a loop are integers, got {value.type}", cure="cast them: n.to(tl.int32)")
    start, end, step = (value.dtype for value in bounds)
    common = promote_integers(promote_integers(start, end), step)
    if common.int_bitwidth < 32:
        common = int32
    if common == uint64:
        raise CompilationError("a loop cannot count in uint64", cure="cast its bounds: n.to(tl.int64)")
    return (common if common.is_int_signed() else int64), common


class _Loop:
    """The variables that a loop changes: arguments of its blocks, what the body yields, results after it.

    Every variable that the body may assign is carried at first; what proves unchanged is dropped before the operation is made.
    A variable whose type changes is an error if the body reads it first, and otherwise has no value after the loop.
    """

    def __init__(self, visitor: ControlFlow, body: Sequence[ast.stmt], target: str = "") -> None:
        self.visitor = visitor
        self.body = body
        self.target = target
        known = {name: visitor.scope.get(name) for name in _assigned_names(body) if name != target}
        self.assigned = list(known)
        self.carried = {name: value for name, value in known.items() if any(True for _ in tensors_in(value))}
        self.initial = [entry.handle for value in self.carried.values() for entry in tensors_in(value)]
        self.entered: list[Scope] = []
        self.lost: dict[str, Undefined] = {}
        self.unchanged: list[bool] = []
        self.settled: dict[Value, Value] = {}

    def enter(self, block: Block) -> Scope:
        """Adds an argument for every carried value and returns the scope inside."""

        def argument(name: str, value: Any) -> Any:
            return replace_tensors(value, lambda entry: tensor(block.add_argument(entry.type.to_ir(), name), entry.type))

        self.entered.append(self.visitor.scope | {name: argument(name, value) for name, value in self.carried.items()})
        return dict(self.entered[-1])

    def generate(self, block: Block, variables: Scope) -> list[Value]:
        """Generates the body and returns what each carried value is at its end."""
        visitor = self.visitor
        outer, visitor.scope = visitor.scope, self.enter(block) | variables
        with operators.inside(visitor.builder, block), visitor.looping():
            visitor.visit_body(self.body, last=False)
        inside, visitor.scope = visitor.scope, outer
        final: list[Value] = []
        for name in self.assigned:
            if name not in outer or isinstance(outer[name], Undefined):
                continue
            end = inside[name]
            if not same_structure(outer[name], end):
                self.lost[name] = self.lose(name, outer[name], end)
                end = self.entered[-1][name]
            if name in self.carried:
                final += [entry.handle for entry in tensors_in(end)]
        return final

    def lose(self, name: str, before: Any, after: Any) -> Undefined:
        """Returns why a variable has no value after the loop. Raises CompilationError where the body needs one."""
        if isinstance(after, Undefined):
            lost = after
        elif name not in self.carried:
            lost = Undefined(
                f"it is {describe_type(before)} before the loop, and a loop cannot change compile-time values",
                f"copy it to a variable before the loop, value = {name}, and change that",
            )
        else:
            lost = Undefined(
                f"it is {describe_type(before)} before the loop and {describe_type(after)} at its end",
                "start with the type that it has later, for example tl.zeros([...], dtype=tl.float32), or cast with .to()",
            )
        if any((name, id(scope[name])) in self.visitor.read for scope in self.entered):
            where = self.visitor.assigned_at.get(name)
            raise CompilationError(
                f"the loop cannot carry {name} from one iteration to the next: {lost.reason}",
                location=None if where is None else self.visitor.location(where).source,
                cure=lost.cure,
            )
        return lost

    def drop_unchanged(self, blocks: Sequence[Block], final: list[Value]) -> list[Value]:
        """Replaces arguments that the loop never changes by the values from before it; returns what is still yielded."""
        arguments = [block.arguments[len(block.arguments) - len(self.initial) :] for block in blocks]
        for argument, *made in zip(arguments[-1], self.initial, final, strict=True):
            for attribute, promised in self.visitor.module.promised.pop(argument, {}).items():
                for value in made:
                    self.visitor.promise(value, attribute, promised)
        self.unchanged = [value is argument for value, argument in zip(final, arguments[-1], strict=True)]
        for block, values in zip(blocks, arguments, strict=True):
            for argument, initial, same in zip(values, self.initial, self.unchanged, strict=True):
                if same:
                    argument.replace_all_uses_with(initial)
                    self.settled[argument] = initial
                    block.erase_argument(argument.index)
        self.initial = [value for value, same in zip(self.initial, self.unchanged, strict=True) if not same]
        return [self.settled.get(value, value) for value, same in zip(final, self.unchanged, strict=True) if not same]

    def leave(self, results: Sequence[Value], line: int) -> None:
        """Sets the scope after the loop."""
        scope = self.visitor.scope
        values, unchanged = iter(results), iter(self.unchanged)
        for name, before in self.carried.items():

            def after(entry: tensor, name: str = name) -> tensor:
                if next(unchanged):
                    return entry
                result = next(values)
                result.name = name
                return tensor(result, entry.type)

            scope[name] = replace_tensors(before, after)
        for name in self.assigned:
            if name not in scope:
                scope[name] = Undefined(
                    f"it is assigned only inside the loop in line {line}, which may not run", "assign it before the loop"
                )
        scope.update(self.lost)
        if self.target:
            scope[self.target] = _counted(line)


def _counted(line: int) -> Undefined:
    return Undefined(f"it counts the loop in line {line}, which may not have run", "keep it in a variable of its own")


def _assigned_names(body: Sequence[ast.stmt]) -> list[str]:
    """Returns the variables that statements may assign, in order."""
    names: list[str] = []
    pending: list[ast.AST] = list(reversed(body))
    while pending:  # in the order of the text
        node = pending.pop()
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif not isinstance(node, (ast.Lambda, ast.ListComp)):  # whose variables are their own
            pending += reversed(list(ast.iter_child_nodes(node)))
    return list(dict.fromkeys(names))
