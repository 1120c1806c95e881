"""Refuses kernels that write to tensors which the schema of their op does not mark: torch takes those to be unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelpack.analysis.address_sources import AddressSources, is_address
from kernelpack.errors import HostFunctionError, SourceLocation
from kernelpack.ir.core import BlockArgument, Operation, entry_function
from kernelpack.ir.dialect import Effect, definition
from kernelpack.passes.inline import inline


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
    parameters = {one.parameter for one in read_only}
    if not parameters & written_parameters(module).keys():
        return
    inlined = module.clone()  # one function may be called with what is read, and with what is written
    inline(inlined)
    written = written_parameters(inlined)
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
    sources = AddressSources(module)
    entry = entry_function(module).body
    found: dict[str, SourceLocation | None] = {}
    for op in module.walk():
        if op.name in _NO_STORES or not op.operands or Effect.WRITE_GLOBAL not in definition(op.name).effects:
            continue
        address, *_ = op.operands
        if is_address(address):
            for root in sources.roots_of(address):
                if isinstance(root, BlockArgument) and root.owner is entry:
                    found.setdefault(root.name, op.location.source)
    return found
