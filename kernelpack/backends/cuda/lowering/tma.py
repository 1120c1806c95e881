"""Copies of blocks between tensors and shared memory by TMA: one thread starts them, box by box.

PTX ISA, "cp.async.bulk.tensor". Coordinates go from the innermost axis to the outermost, and may lie outside of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelpack.backends.cuda.lowering.mbarrier import address_of
from kernelpack.backends.cuda.machine.block_copies import transfer_into
from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, operand, operands_called
from kernelpack.ir.dialects.descriptors import block_of
from kernelpack.ir.types import TensorDescType, bit_width, shape_of
from kernelpack.llvm.text import Val


def _pieces(state: Lowering, op: Operation, tile: Value) -> Iterator[tuple[Val, list[Val]]]:
    """Yields the address in shared memory and the coordinates, innermost first, of every box of a copy."""
    block, buffer = block_of(operand(op, "desc").type), address_of(state, tile)
    transfer = transfer_into(block, shape_of(tile.type), attribute(op, "row"))
    assert transfer is not None  # the row's check
    coords = [state.scalar(value) for value in operands_called(op, "coords")]
    width = bit_width(block.element) // 8

    def plus(value: Val, constant: int) -> Val:
        return state.emit.binary("add", value, i32(constant)) if constant else value

    for piece in transfer.pieces:
        place = [plus(coord, start) for coord, start in zip(coords, piece.start, strict=True)]
        yield plus(buffer, piece.offset * width), place[::-1]


def prefetch_tensor_maps(state: Lowering, function: Operation) -> None:
    """Has a kernel's tensor maps at hand when the first copies need them: fetching one takes as long as a load."""
    for argument in function.body.arguments:
        if isinstance(argument.type, TensorDescType):
            state.asm("void", "@$0 prefetch.tensormap [$1];", "b,l,~{memory}", [state.first_thread(), state.scalar(argument)])


def _load(state: Lowering, op: Operation) -> None:
    starts = state.emit.binary("and", state.first_thread(), state.scalar(operand(op, "pred")))
    barrier, tensor_map = address_of(state, operand(op, "barrier")), state[operand(op, "desc")][0]
    for address, coords in _pieces(state, op, operand(op, "dst")):
        rank = len(coords)
        place = ", ".join(f"${3 + axis}" for axis in range(rank))
        text = (
            f"@$0 cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
            f"[$1], [$2, {{{place}}}], [${3 + rank}];"
        )
        state.asm("void", text, "b,r,l" + ",r" * rank + ",r,~{memory}", [starts, address, tensor_map, *coords, barrier])


def _store(state: Lowering, op: Operation) -> None:
    starts, (tensor_map, *some) = state.first_thread(), state[operand(op, "desc")]
    for condition in some:  # nothing is stored to an empty tensor, whose map has an element
        starts = state.emit.binary("and", starts, condition)
    for address, coords in _pieces(state, op, operand(op, "src")):
        rank = len(coords)
        place = ", ".join(f"${3 + axis}" for axis in range(rank))
        text = f"@$0 cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$2, {{{place}}}], [$1];"
        state.asm("void", text, "b,r,l" + ",r" * rank + ",~{memory}", [starts, address, tensor_map, *coords])
    state.asm("void", "@$0 cp.async.bulk.commit_group;", "b,~{memory}", [starts])


def _store_wait(state: Lowering, op: Operation) -> None:
    state.asm("void", f"cp.async.bulk.wait_group.read {op.attributes['pendings']};", "~{memory}", [])


TMA: dict[str, Callable[[Lowering, Operation], None]] = {
    "ttng.async_tma_copy_global_to_local": _load,
    "ttng.async_tma_copy_local_to_global": _store,
    "ttng.async_tma_store_wait": _store_wait,
}
