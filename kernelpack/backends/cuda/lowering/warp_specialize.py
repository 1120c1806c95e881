"""Roles: every warp branches to the code of its role, and takes or gives up registers there."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.machine.features import LANES
from kernelpack.backends.cuda.machine.roles import REGISTERS, Place, roles_of
from kernelpack.backends.gpu.lowering.linear_code import i32
from kernelpack.ir.core import Operation
from kernelpack.layout.linear import log2
from kernelpack.llvm.text import Val


def _warp_specialize(state: CudaLowering, op: Operation) -> None:
    emit = state.emit
    # barriers were initialised by one thread; all, and the asynchronous proxy, see that from here on (PTX ISA, fence)
    state.asm("void", "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;", "~{memory}", [])
    state.barrier()
    # the same in all lanes, and known to be: ptxas then branches without keeping track of who diverged
    warp = state.shuffle("idx", emit.binary("lshr", state.tid, i32(log2(LANES))), i32(0))
    places = roles_of(op)
    end = emit.new_label("end")
    for place in places:
        label, following = emit.new_label("role"), emit.new_label("otherwise")
        emit.branch(emit.compare("icmp", "ult", warp, i32(place.first + place.width)), label, following)
        emit.label(label)
        _role(state, place, emit.binary("sub", warp, i32(place.first)), places, end)
        emit.jump(end)
        emit.label(following)
    emit.jump(end)
    emit.label(end)


def _role(state: CudaLowering, place: Place, warp: Val, places: list[Place], end: str) -> None:
    emit = state.emit
    if place.registers:
        share = REGISTERS // sum(other.width * LANES for other in places) // 8 * 8  # what each thread starts with
        direction = "inc" if place.registers > share else "dec"
        emit.call("void", f"llvm.nvvm.setmaxnreg.{direction}.sync.aligned.u32", [i32(place.registers)])
    if place.num_warps * place.copies < place.width:
        label = emit.new_label("working")
        emit.branch(emit.compare("icmp", "ult", warp, i32(place.num_warps * place.copies)), label, end)
        emit.label(label)
    copy = emit.binary("lshr", warp, i32(log2(place.num_warps)))
    state[place.op.body.arguments[0]] = [copy]
    outer = state.tid, state.num_warps, state.barrier_number, state.copy
    thread = emit.binary("sub", state.tid, i32(place.first * LANES))
    state.tid = emit.binary("and", thread, i32(place.num_warps * LANES - 1))
    state.num_warps = place.num_warps
    state.barrier_number = emit.binary("add", copy, i32(place.barrier))
    state.copy = copy if place.copies > 1 else None
    state.warpgroup()
    state.block(place.op.body)
    state.tid, state.num_warps, state.barrier_number, state.copy = outer


WARP_SPECIALIZE: dict[str, Callable[[CudaLowering, Operation], None]] = {"ttg.warp_specialize": _warp_specialize}
