"""What the operations of a few lines do to shared memory, as text."""

from __future__ import annotations

from kernelpack.analysis.allocation import Allocation, allocate
from kernelpack.analysis.membar import BARRIER, Accesses
from kernelpack.backends.gpu.facts.scratch import alignment_of, bytes_of
from kernelpack.backends.gpu.facts.shared_accesses import SharedAccesses
from kernelpack.backends.gpu.machine import SharedUses
from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.encoding import tma_encoding
from kernelpack.layout.families import Threads, spread, swizzled
from tests.backends.gpu.ttgir import parse

LAYOUTS = {
    "R": spread((16, 16), 1, (1, 0), Threads(1, 32)),
    "I": spread((16,), 1, (0,), Threads(1, 32)),
    "S": swizzled((16, 16), (1, 0)),
    "Z": swizzled((2, 16, 16), (2, 1, 0)),
    "B": swizzled((1,), (0,)),
}
TILE, BUFFER = "tensor<16x16xf32, $R>", "!ttg.memdesc<16x16xf32, $S, #ttg.shared_memory, mutable>"
TWO, ONE = "!ttg.memdesc<2x16x16xf32, $Z, #ttg.shared_memory, mutable>", "!ttg.memdesc<1xi64, $B, #ttg.shared_memory, mutable>"
BLOCK, BYTES = (
    "!tt.tensordesc<tensor<16x16xf32>>",
    f"!ttg.memdesc<16x16xf32, {tma_encoding((16, 16), 32)}, #ttg.shared_memory, mutable>",
)
ARGUMENTS = f"%x: {TILE}, %p: tensor<16x16x!tt.ptr<f32>, $R>, %i: i32, %v: tensor<16xi32, $I>, %w: tensor<16xf32, $I>, %d: {BLOCK}, %yes: i1"


def told(body: str, uses: SharedUses) -> dict[str, str]:
    """Returns what each operation does: `R` reads, `W` writes, `A` writes later; `|` a barrier, before and after it."""
    root = entry_function(parse(body, ARGUMENTS, LAYOUTS))
    accesses = SharedAccesses(root, placed(root, uses), lambda op: BARRIER, uses)
    return {op.name.partition(".")[2]: _text(accesses(op)) for op in root.walk() if op is not root}


def _text(accesses: Accesses) -> str:
    def side(pending: object) -> str:
        kinds = {"R": pending.reads, "W": pending.writes, "A": pending.async_writes}
        return " ".join(f"{kind}[{each.start}, {each.end})" for kind, found in kinds.items() for each in sorted(found, key=str))

    before, after = side(accesses.before), side(accesses.after)
    if accesses.fenced:
        return f"{before} | {after}".strip()
    return before if before == after else f"{before} -> {after}".strip()


def placed(function: Operation, uses: SharedUses) -> Allocation:
    return allocate(function, lambda op: bytes_of(op, uses), lambda op: alignment_of(op, uses))
