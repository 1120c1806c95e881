"""Moves of neighbouring lanes under a mask where the CPU has no instruction for them. LLVM would write a branch for each lane of each move."""

from __future__ import annotations

from collections.abc import Callable

from kernelpack.llvm.text import Emitter, Val, element_type, literal, suffix, vector_width

_PAGE = 4096
_REGISTER = 16
"""The bytes of one of NEON's registers."""
_COPY = """define internal preserve_allcc void @copy_lanes_{element}(ptr %to, ptr %from, i64 %mask) noinline #0 {{
entry:
  br label %next
next:
  %left = phi i64 [ %mask, %entry ], [ %rest, %copy ]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %done, label %copy
copy:
  %lane = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %below = sub i64 %left, 1
  %rest = and i64 %left, %below
  %source = getelementptr {element}, ptr %from, i64 %lane
  %place = getelementptr {element}, ptr %to, i64 %lane
  %one = load {element}, ptr %source, align {size}
  store {element} %one, ptr %place, align {size}
  br label %next
done:
  ret void
}}"""
"""A function that goes from one lane that takes part to the next."""


def is_native(em: Emitter, width: int, size: int) -> bool:
    """Whether the CPU moves vectors of `width` elements of `size` bytes under a mask. SVE moves vectors of any size, LLVM takes whole
    registers only."""
    if "sve2" in em.features:
        return width * size == _REGISTER
    return "avx512" in em.features or ("avx2" in em.features and size >= 4)


def load_lanes(em: Emitter, base: Val, mask: Val, passed: Val, size: int, room: Val) -> Val:
    """Returns a vector from `base` on, with the lanes of `passed` where the mask does not hold. `room` is memory for a vector.

    Where a lane takes part, the page that it lies in is there, and the lanes beside it can be read, too. A vector on the border of two
    pages is read lane by lane."""
    wide, bits = passed.type, _bits(em, mask)
    base = em.select(em.compare("icmp", "ne", bits, literal(0, "i64")), base, room)
    within = em.binary("and", em.cast("ptrtoint", base, "i64"), literal(_PAGE - 1, "i64"))
    on_border = em.compare("icmp", "ugt", within, literal(_PAGE - vector_width(wide) * size, "i64"))
    lanes, whole = em.new_label("lanes"), em.new_label("whole")
    em.branch(on_border, lanes, whole)
    em.label(lanes)
    _copy(em, room, base, bits, wide, size)
    em.jump(whole)
    em.label(whole)
    return em.select(mask, em.load(wide, em.select(on_border, room, base), size), passed)


def store_if(em: Emitter, holds: Val, value: Val, base: Val, size: int, otherwise: Callable[[], None] = lambda: None) -> None:
    """Stores a vector where a condition holds, or does something else."""
    store, other, after = em.new_label("store"), em.new_label("other"), em.new_label("after")
    em.branch(holds, store, other)
    em.label(store)
    em.store(value, base, size)
    em.jump(after)
    em.label(other)
    otherwise()
    em.jump(after)
    em.label(after)


def store_masked(em: Emitter, value: Val, base: Val, mask: Val, size: int, room: Callable[[str], Val]) -> None:
    """Stores the lanes of a vector where the mask holds, from `base` on. `room` gives memory for a vector."""
    width = vector_width(value.type)

    def store_lanes() -> None:
        if width > 1 and not is_native(em, width, size):
            kept = room(value.type)
            em.store(value, kept, 64)
            _copy(em, base, kept, _bits(em, mask), value.type, size)
        else:
            em.call("void", f"llvm.masked.store.{suffix(value.type)}.p0", [value, base, Val("i32", str(size)), mask])

    if width == 1 or "avx512" in em.features:
        store_lanes()
    else:  # others take tens of cycles: most masks that are not known hold for all lanes
        bits = em.cast("bitcast", mask, f"i{width}")
        store_if(em, em.compare("icmp", "eq", bits, literal(-1, bits.type)), value, base, size, store_lanes)


def _bits(em: Emitter, mask: Val) -> Val:
    return em.cast("zext", em.cast("bitcast", mask, f"i{vector_width(mask.type)}"), "i64")


def _copy(em: Emitter, to: Val, source: Val, bits: Val, wide: str, size: int) -> None:
    element = element_type(wide)
    em.declarations |= {_COPY.format(element=element, size=size), "declare i64 @llvm.cttz.i64(i64, i1)"}
    em.line(f"call preserve_allcc void @copy_lanes_{element}({to}, {source}, {bits})")
