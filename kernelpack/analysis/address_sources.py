"""Where addresses come from: through arithmetic, loops, branches and calls, but not through memory."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.analysis.call_graph import CallGraph
from kernelpack.ir.core import BlockArgument, Operation, OpResult, Value
from kernelpack.ir.types import PointerType, TensorDescType, element_of


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
