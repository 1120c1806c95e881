"""Waiting for each other below the level of a block: mbarriers in shared memory, named barriers, the proxy fence."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.backends.cuda.machine.dialect import NAMED_BARRIERS
from kernelpack.backends.cuda.machine.features import LANES
from kernelpack.backends.gpu.lowering.linear_code import I32, i32
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import attribute, operand, optional_operand
from kernelpack.llvm.text import Val

# spins until the phase of this parity is complete; try_wait itself sleeps for a while (PTX ISA, mbarrier.try_wait)
_WAIT = """{
.reg .pred complete;
again:
mbarrier.try_wait.parity.shared::cta.b64 complete, [$0], $1;
@complete bra done;
bra again;
done:
}"""


def address_of(state: Lowering, buffer: Value) -> Val:
    """Returns where a buffer lies in shared memory as the 32 bits that PTX takes."""
    return state.emit.cast("ptrtoint", state.addresses[buffer], I32)


def _init(state: Lowering, op: Operation) -> None:
    operands = [state.first_thread(), address_of(state, op.operand), i32(op.attributes["count"])]
    state.asm("void", "@$0 mbarrier.init.shared::cta.b64 [$1], $2;", "b,r,r,~{memory}", operands)


def _fence_init(state: Lowering, op: Operation) -> None:
    state.asm("void", "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;", "~{memory}", [])


def _inval(state: Lowering, op: Operation) -> None:
    operands = [state.first_thread(), address_of(state, op.operand)]
    state.asm("void", "@$0 mbarrier.inval.shared::cta.b64 [$1];", "b,r,~{memory}", operands)


def _expect(state: Lowering, op: Operation) -> None:
    starts, pred = state.first_thread(), optional_operand(op, "pred")
    if pred is not None:
        starts = state.emit.binary("and", starts, state.scalar(pred))
    operands = [starts, address_of(state, operand(op, "alloc")), i32(op.attributes["size"])]
    state.asm("void", "@$0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], $2;", "b,r,r,~{memory}", operands)


def _wait(state: Lowering, op: Operation) -> None:
    barrier, phase = op.operands
    state.asm("void", _WAIT, "r,r,~{memory}", [address_of(state, barrier), state.scalar(phase)])


def _arrive(state: Lowering, op: Operation) -> None:
    every: int = attribute(op, "every")
    if every == 1:
        state.emit.call("void", "llvm.nvvm.bar.warp.sync", [i32(-1)])  # what its lanes did to shared memory comes before
    if every:
        arrives = state.emit.compare("icmp", "eq", state.emit.binary("and", state.tid, i32(every * LANES - 1)), i32(0))
    else:
        arrives = state.first_thread()
    operands = [arrives, address_of(state, op.operand)]
    state.asm("void", "@$0 mbarrier.arrive.shared::cta.b64 _, [$1];", "b,r,~{memory}", operands)


def _named(intrinsic: str) -> Callable[[Lowering, Operation], None]:
    """Kernels name the upper half of a block's barriers; roles wait at the others."""

    def lower(state: Lowering, op: Operation) -> None:
        number = state.emit.binary("add", state.scalar(op.operand), i32(16 - NAMED_BARRIERS))
        state.emit.call("void", intrinsic, [number, i32(op.attributes["threads"])])

    return lower


MBARRIER: dict[str, Callable[[Lowering, Operation], None]] = {
    "ttng.init_barrier": _init,
    "ttng.fence_mbarrier_init": _fence_init,
    "ttng.inval_barrier": _inval,
    "ttng.barrier_expect": _expect,
    "ttng.wait_barrier": _wait,
    "ttng.arrive_barrier": _arrive,
    "ttng.wait_barrier_named": _named("llvm.nvvm.barrier.cta.sync.aligned.count"),
    "ttng.arrive_barrier_named": _named("llvm.nvvm.barrier.cta.arrive.aligned.count"),
}
