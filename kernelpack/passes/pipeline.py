"""Passes in an order that is a table, checked when the table is made, and the one driver that runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.analysis.call_graph import CallGraph
from kernelpack.context import Context, Hook
from kernelpack.ir.core import Operation, functions
from kernelpack.ir.verify import verify


@dataclass(frozen=True)
class Pass:
    """A named rewrite in place: `run(operation, context)`. It is skipped where `when(operation, context)` does not hold.

    `after` names passes that must stand before it in its pipeline. It is checked, and never used to sort.
    """

    name: str
    run: Callable[[Operation, Any], object]
    after: tuple[str, ...] = ()
    when: Callable[[Operation, Any], bool] = lambda operation, context: True


@dataclass(frozen=True)
class Nest:
    """Passes that take one function of a module after the other, callers first: all of them run over one before the next."""

    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class Pipeline:
    """Passes over a module in their order. As a stage of a backend it leaves its input as it is.

    Raises ValueError when it is made, with the names, for two passes of one name and for an order that breaks an `after`.
    """

    name: str
    parts: tuple[Pass | Nest, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        names = [step.name for step in self.passes()]
        for step in self.passes():
            if step.name in seen:
                raise ValueError(f"pipeline {self.name}: two passes are called {step.name}")
            for earlier in step.after:
                if earlier not in names:
                    raise ValueError(f"pipeline {self.name}: {step.name} needs {earlier} before it, which is no pass of it")
                if earlier not in seen:
                    raise ValueError(f"pipeline {self.name}: {step.name} needs {earlier} before it, which comes after it")
            seen.add(step.name)

    def passes(self) -> Iterator[Pass]:
        """Yields all passes in order, those of nests too."""
        for part in self.parts:
            yield from part.passes if isinstance(part, Nest) else (part,)

    def part(self, name: str) -> Pass | Nest:
        """Returns one pass alone: in a nest of its own if it takes functions."""
        for part in self.parts:
            if isinstance(part, Pass) and part.name == name:
                return part
            for step in part.passes if isinstance(part, Nest) else ():
                if step.name == name:
                    return Nest((step,))
        raise KeyError(name)

    def __call__(self, module: Operation, context: Context) -> Operation:
        """Returns a copy of a module that the passes have run over."""
        return self.run(module.clone(), context, context.hooks)

    def run(self, module: Operation, context: Context | None = None, hooks: Sequence[Hook] = ()) -> Operation:
        """Runs the passes over a module in place and returns it."""
        for part in self.parts:
            run_part(part, module, context, hooks)
        return module


def run_part(part: Pass | Nest, module: Operation, context: Context | None, hooks: Sequence[Hook] = ()) -> None:
    """Runs one part of a pipeline over a module in place."""
    if isinstance(part, Pass):
        _run(part, module, context, hooks)
        return
    for function in CallGraph(module).callers_first():
        for step in part.passes:
            _run(step, function, context, hooks)


def _run(step: Pass, operation: Operation, context: Context | None, hooks: Sequence[Hook]) -> None:
    if not step.when(operation, context):
        return
    for hook in hooks:
        hook.before(step.name, operation)
    started = time.perf_counter()
    step.run(operation, context)
    seconds = time.perf_counter() - started
    for hook in hooks:
        hook.after(step.name, operation, seconds)


class Verifying:
    """A hook that checks the IR after each pass, and names the pass in the errors that it raises.

    While a nest goes through several functions, calls do not fit what they call yet: those are checked after the nest.
    """

    def before(self, name: str, operation: Operation) -> None:
        pass

    def after(self, name: str, operation: Operation, seconds: float) -> None:
        module = next(operation.ancestors(), operation)
        if operation is not module and len(functions(module)) > 1:
            return
        try:
            verify(module)
        except Exception as problem:
            problem.add_note(f"after pass {name}")
            raise


def module_pass(run: Callable[[Operation], object], name: str = "", after: tuple[str, ...] = ()) -> Pass:
    """Returns the pass of a rewrite that needs no context; it is called as the rewrite is, unless it says otherwise."""
    return Pass(name or getattr(run, "__name__", ""), lambda operation, context: run(operation), after)
