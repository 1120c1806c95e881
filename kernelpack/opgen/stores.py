"""Refuses kernels that write to tensors which the schema of their op does not mark: torch takes those to be unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelpack.analysis.call_graph import CallGraph
from kernelpack.errors import HostFunctionError, SourceLocation
from kernelpack.ir.core import BlockArgument, Operation, OpResult, Value, entry_function
from kernelpack.ir.dialect import Effect, definition
from kernelpack.ir.types import PointerType, TensorDescType, element_of


@dataclass(frozen=True)
class ReadOnly:
    """A kernel parameter that gets an unmarked argument of an op, at a launch."""

    parameter: str
    argument: str
    op: str
    launch: SourceLocation


def check_stores(module: Operation, read_only: Sequence[ReadOnly]) -> None:
    """Raises HostFunctionError, at the line of the store, for one through a parameter that is only to be read."""
    if not read_only:
        return
    written = written_parameters(module)
    for one in read_only:
        if one.parameter in written:
            raise HostFunctionError(
                f"{one.op}: its kernel stores through {one.parameter!r}, which is the op's argument {one.argument!r} "
                f"({one.launch}), and the schema says that the op leaves {one.argument!r} as it is",
                location=written[one.parameter],
                cure=f"write Tensor(a!) {one.argument} in the schema, or store to a tensor that kp.empty_like({one.argument}) makes",
            )


_NO_STORES = ("tt.call", "tt.elementwise_inline_asm")
"""Operations with write effects that are no stores themselves: a called function has stores of its own, and of assembly nobody knows
what it does with an address."""


def written_parameters(module: Operation) -> dict[str, SourceLocation | None]:
    """Returns the names of the kernel's parameters that it stores through, with the place of the first store."""
    sources = _Sources(module)
    entry = entry_function(module).body
    found: dict[str, SourceLocation | None] = {}
    for op in module.walk():
        if op.name in _NO_STORES or not op.operands or not _is_address(op.operands[0]):
            continue
        if Effect.WRITE_GLOBAL in definition(op.name).effects:
            for argument in sources.arguments_of(op.operands[0]):
                if argument.owner is entry:
                    found.setdefault(argument.name, op.location.source)
    return found


def _is_address(value: Value) -> bool:
    return isinstance(value.type, TensorDescType) or isinstance(element_of(value.type), PointerType)


class _Sources:
    """Where addresses come from: through arithmetic, loops, branches and calls, but not through memory."""

    def __init__(self, module: Operation) -> None:
        self.calls = CallGraph(module)

    def arguments_of(self, value: Value) -> Iterator[BlockArgument]:
        """Yields the arguments of functions that an address may be made of."""
        pending, seen = [value], {value}
        while pending:
            one = pending.pop()
            if isinstance(one, BlockArgument):
                yield one
            for source in self._direct(one):
                if source not in seen and _is_address(source):
                    seen.add(source)
                    pending.append(source)

    def _direct(self, value: Value) -> Sequence[Value]:
        """Returns the values that a value stands for, or is computed from, in one step."""
        if isinstance(value, BlockArgument):
            return self._passed(value)
        assert isinstance(value, OpResult)
        op, index = value.owner, value.index
        match op.name:
            case "scf.for":
                return (op.body.arguments[1 + index],)
            case "scf.while":
                return (op.regions[0].block.terminator.operands[1 + index],)
            case "scf.if":
                return [region.block.terminator.operands[index] for region in op.regions if region.blocks]
            case "tt.call":
                return (self.calls.callees[op].body.terminator.operands[index],)
            case "tt.load" | "tt.atomic_rmw" | "tt.atomic_cas":
                return ()
        return op.operands

    def _passed(self, argument: BlockArgument) -> Sequence[Value]:
        block, index = argument.owner, argument.index
        assert block.parent is not None
        op = block.parent.parent
        assert op is not None
        match op.name:
            case "tt.func":
                return [call.operands[index] for call in self.calls.sites(op)]
            case "scf.for" if index:
                return (op.operands[2 + index], block.terminator.operands[index - 1])
            case "scf.while":
                before, after = (region.block for region in op.regions)
                if block is before:
                    return (op.operands[index], after.terminator.operands[index])
                return (before.terminator.operands[1 + index],)
        return ()
