"""Code that evaluates linear layouts at run time: from the thread's index to coordinates and offsets."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.llvm.text import Emitter, Val

I32 = "i32"


def i32(value: int) -> Val:
    return Val(I32, str(value))


def apply_linear(emit: Emitter, index: Val, bases: Sequence[int]) -> Val:
    """Returns the exclusive or of the bases of the set bits of `index`.

    Bits that move by the same distance move together, so that a layout costs one mask and shift for each distance.
    """
    distances: dict[int, int] = {}
    for bit, basis in enumerate(bases):
        for target in range(basis.bit_length()):
            if basis >> target & 1:
                distances[target - bit] = distances.get(target - bit, 0) | 1 << bit
    result: Val | None = None
    for distance, mask in sorted(distances.items()):
        term = index if mask == (1 << len(bases)) - 1 else emit.binary("and", index, i32(mask))
        if distance > 0:
            term = emit.binary("shl", term, i32(distance))
        elif distance < 0:
            term = emit.binary("lshr", term, i32(-distance))
        result = term if result is None else emit.binary("xor", result, term)
    return result if result is not None else i32(0)


def reach(bases: Sequence[int]) -> int:
    """Returns the mask of the bits that any index can set."""
    mask = 0
    for basis in bases:
        mask |= basis
    return mask


class LinearOffsets:
    """Offsets base xor constant, where the base depends on run-time indices: what lies outside the base's bits is added, free
    in an address.
    """

    def __init__(self, emit: Emitter, inputs: Sequence[tuple[Val, Sequence[int]]]) -> None:
        """`inputs` are indices, each with what its bits add to the offset."""
        self.emit = emit
        self.mask = 0
        base: Val | None = None
        for index, bases in inputs:
            self.mask |= reach(bases)
            part = apply_linear(emit, index, bases)
            base = part if base is None else emit.binary("xor", base, part)
        assert base is not None
        self.base = base
        self._varied: dict[int, Val] = {0: base}

    def split(self, constant: int) -> tuple[Val, int]:
        """Returns a run-time part and a constant to add to it."""
        inside = constant & self.mask
        if inside not in self._varied:
            self._varied[inside] = self.emit.binary("xor", self.base, i32(inside))
        return self._varied[inside], constant & ~self.mask
