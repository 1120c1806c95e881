"""A pattern driver: rewrites operations until no pattern applies, and erases what nobody needs any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from kernelpack.ir.core import Block, Builder, Operation, Value
from kernelpack.ir.dialect import Effect, Trait, attribute, computes, definition, facts

Pattern = Callable[[Operation, "Rewriter"], bool]
"""Changes the IR around an operation through the Rewriter and returns whether it did."""

Fold = Callable[[Operation, "Rewriter"], Value | None]
"""Returns the value to use in place of an operation's only result, or None."""

_UNNOTICED = frozenset({Effect.READ_GLOBAL, Effect.READ_SHARED, Effect.ALLOCATE_SHARED})


def folds(fold: Fold) -> Pattern:
    """Makes a pattern of a function that only finds another value for the result.

    What is promised of the old value (`tt.divisibility` and the like) then holds for a new operation's result too.
    """

    def pattern(op: Operation, rewriter: Rewriter) -> bool:
        value = fold(op, rewriter)
        if value is None:
            return False
        made = value.defining_op
        if made is not None and made in rewriter.created:
            made.attributes.update({name: fact for name, fact in facts(op).items() if name not in made.attributes})
        rewriter.replace(op, value)
        return True

    return pattern


def is_removable(op: Operation) -> bool:
    """Whether an operation may go if its results are unused: neither it nor what is nested in it does anything else than compute,
    read memory that is not volatile, or fill a new buffer."""
    return all(is_harmless(inner) for inner in op.walk())


def is_harmless(op: Operation) -> bool:
    """Whether an operation by itself, whatever is nested in it, only computes, reads memory, or fills a new buffer."""
    row = definition(op.name)
    harmless = computes(op) or Trait.TERMINATOR in row.traits
    reads = (
        bool(row.effects)
        and row.effects <= _UNNOTICED
        and not ("is_volatile" in row.attribute_defs and attribute(op, "is_volatile"))
    )
    return harmless or reads


def is_dead(op: Operation) -> bool:
    """Whether an operation can be erased: nobody uses its results and it does nothing else."""
    return (
        not any(result.uses for result in op.results)
        and op.parent is not None
        and (Trait.TERMINATOR not in definition(op.name).traits and is_removable(op))
    )


class Rewriter(Builder):
    """What patterns change the IR with. New operations go before the one at hand and have its location."""

    def __init__(self, root: Operation) -> None:
        super().__init__(root.regions[0].block)
        self.anchor = root
        self.created: list[Operation] = []
        """The operations inserted by the pattern at work."""
        self._queue: deque[Operation] = deque()
        self._queued: set[Operation] = set()

    def insert(self, op: Operation) -> Operation:
        block = self.anchor.parent
        assert block is not None
        block.insert(block.index(self.anchor), op)
        self.created.append(op)
        self.touch(op)
        return op

    def touch(self, *ops: Operation | None) -> None:
        """Has operations looked at again."""
        for op in ops:
            if op is not None and op not in self._queued:
                self._queued.add(op)
                self._queue.append(op)

    def replace_uses(self, value: Value, other: Value) -> None:
        """Gives the users of a value another one."""
        self.touch(*value.users())
        value.replace_all_uses_with(other)

    def replace(self, op: Operation, *values: Value) -> None:
        """Gives the users of each result the value in its place, and erases the operation."""
        for result, value in zip(op.results, values, strict=True):
            self.replace_uses(result, value)
        self.erase(op)

    def erase(self, op: Operation) -> None:
        """Erases an operation whose results are unused, with everything in it."""
        self.touch(*(value.defining_op for inner in op.walk() for value in inner.operands))
        op.erase()

    def splice(self, block: Block, arguments: Sequence[Value] = ()) -> list[Value]:
        """Moves a block's operations before the one at hand and returns what its terminator passed on."""
        for argument, value in zip(block.arguments, arguments, strict=True):
            self.replace_uses(argument, value)
        *body, terminator = block.operations
        passed = list(terminator.operands)
        terminator.erase()
        for op in body:
            self.insert(op)
        return passed

    def run(self, patterns: Mapping[str, Sequence[Pattern]]) -> bool:
        """Applies patterns until none does; returns whether any did."""
        self.touch(*self.anchor.walk())
        root, changed, budget = self.anchor, False, 1000 + 100 * len(self._queue)
        while self._queue:
            op = self._queue.popleft()
            self._queued.discard(op)
            if op is root or op.parent is None:
                continue
            if is_dead(op):
                self.erase(op)
                changed = True
                continue
            self.anchor, self.location = op, op.location
            for pattern in patterns.get(op.name, ()):
                self.created.clear()
                if pattern(op, self):
                    changed = True
                    budget -= 1
                    if op.parent is not None:
                        self.touch(op, *(user for result in op.results for user in result.users()))
                    break
            if budget < 0:
                raise RuntimeError(f"patterns undo each other: still rewriting {op.name}")
        return changed


def rewrite(root: Operation, patterns: Mapping[str, Sequence[Pattern]]) -> bool:
    """Applies patterns, by operation name, to everything inside `root` until none applies, and erases dead operations.

    Deterministic: in program order first, then in the order in which changes make operations worth another look. Returns
    whether anything changed.
    """
    return Rewriter(root).run(patterns)
