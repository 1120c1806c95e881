"""Emits atomic updates of one element each: LLVM's own where it has them, loops of compare-and-swap where it has not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand
from kernelpack.ir.types import BF16, Type, bit_width, element_of
from kernelpack.llvm.text import Val, literal

# the weaker of these orders a failed exchange, which may not release
_ORDERINGS = {"relaxed": "monotonic"}
_OF_FLOATS = {"fadd": "arith.addf", "fmax": "arith.maxnumf", "fmin": "arith.minnumf"}
_WHEN_FAILED = {"acquire": "acquire", "acq_rel": "acquire"}


def emit_atomic(lowering: Lowering, op: Operation, operands: Sequence[Val], keep: Callable[[Val], None]) -> None:
    """Writes a tt.atomic_rmw or tt.atomic_cas of one element; `keep` receives the old value (zero where masked off)."""
    em = lowering.em
    if op.name == "tt.atomic_cas":
        keep(_compare_and_swap(lowering, op, *operands))
        return
    pointer, value, *mask = operands
    after = em.new_label("next")
    if mask:
        keep(_zero(value.type))
        inside = em.new_label("atomic")
        em.branch(mask[0], inside, after)
        em.label(inside)
    what = op.attributes["atomic_rmw_op"]
    element = element_of(operand(op, "val").type)
    ordering, size = _ordering(op), max(1, bit_width(element) // 8)
    if what in ("fmax", "fmin") or (what == "fadd" and element == BF16):
        keep(_by_exchanges(lowering, _OF_FLOATS[what], pointer, value, element, ordering))
    else:
        word = "xchg" if what == "exch" else what
        keep(em.op(value.type, f"atomicrmw {word} {pointer}, {value} {ordering}, align {size}"))
    if mask:
        em.jump(after)
        em.label(after)


def _zero(kind: str) -> Val:
    return Val(kind, "null") if kind == "ptr" else literal(0, kind)


def _ordering(op: Operation) -> str:
    sem = str(attribute(op, "sem"))
    return _ORDERINGS.get(sem, sem)


def _compare_and_swap(lowering: Lowering, op: Operation, pointer: Val, compared: Val, value: Val) -> Val:
    """Exchanges bits, whatever the type: -0.0 is not 0.0."""
    em, width = lowering.em, bit_width(op.result.type)
    sem = str(attribute(op, "sem"))
    bits = [em.cast("bitcast", side, f"i{width}") for side in (compared, value)]
    failed = _WHEN_FAILED.get(sem, "monotonic")
    text = f"cmpxchg {pointer}, {bits[0]}, {bits[1]} {_ordering(op)} {failed}, align {width // 8}"
    old = em.op(f"i{width}", f"extractvalue {em.op(f'{{ i{width}, i1 }}', text)}, 0")
    return em.cast("bitcast", old, value.type)


def _by_exchanges(lowering: Lowering, combine: str, pointer: Val, value: Val, element: Type, ordering: str) -> Val:
    """Updates a float of 16 bits, for which there is no instruction: reads, combines and writes, until nobody wrote in between."""
    em, kind = lowering.em, value.type
    seen = em.alloca("i16", "seen", 2)
    em.store(em.op("i16", f"load atomic i16, {pointer} monotonic, align 2"), seen, 2)
    again, done = em.new_label("again"), em.new_label("updated")
    em.jump(again)
    em.label(again)
    before = em.load("i16", seen, 2)
    old = em.cast("bitcast", before, kind)
    new = em.cast("bitcast", lowering.apply(combine, [old, value], element, element, 1), "i16")
    swapped = em.op("{ i16, i1 }", f"cmpxchg {pointer}, {before}, {new} {ordering} monotonic, align 2")
    em.store(em.op("i16", f"extractvalue {swapped}, 0"), seen, 2)
    em.branch(em.op("i1", f"extractvalue {swapped}, 1"), done, again)
    em.label(done)
    return old
