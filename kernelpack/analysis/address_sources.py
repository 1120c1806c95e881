"""Where addresses come from: through arithmetic, loops, branches and calls, but not through memory."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.analysis.call_graph import CallGraph
from kernelpack.ir.core import BlockArgument, Operation, OpResult, Value
from kernelpack.ir.types import PointerType, TensorDescType, element_of
from kernelpack.ir.views import slot_of


def is_address(value: Value) -> bool:
    """Whether a value is a pointer, a tile of them, or a tensor descriptor."""
    return isinstance(value.type, TensorDescType) or isinstance(element_of(value.type), PointerType)


class AddressSources:
    """What the addresses of a module's functions are made of, as the module is when asked."""

    def __init__(self, module: Operation) -> None:
        self.calls = CallGraph(module)

    def roots_of(self, address: Value) -> frozenset[Value]:
        """Returns what an address may be made of: arguments of kernels, and addresses that come from memory or from integers."""
        pending, seen, roots = [address], {address}, set()
        while pending:
            one = pending.pop()
            sources = [source for source in self._direct(one) if is_address(source)]
            if not sources:
                roots.add(one)
            pending += [source for source in sources if source not in seen]
            seen.update(sources)
        return frozenset(roots)

    def _direct(self, value: Value) -> Sequence[Value]:
        """Returns the values that a value stands for, or is computed from, in one step."""
        slot = slot_of(value)
        if slot is not None:
            return slot.source_values()
        if isinstance(value, BlockArgument):
            return self._passed(value)
        assert isinstance(value, OpResult)
        op, index = value.owner, value.index
        match op.name:
            case "tt.call":
                return (self.calls.callees[op].body.terminator.operands[index],)
            case "tt.load" | "tt.atomic_rmw" | "tt.atomic_cas":
                return ()
        return op.operands

    def _passed(self, argument: BlockArgument) -> Sequence[Value]:
        assert argument.owner.parent is not None
        op = argument.owner.parent.parent
        assert op is not None
        return [call.operands[argument.index] for call in self.calls.sites(op)] if op.name == "tt.func" else ()
