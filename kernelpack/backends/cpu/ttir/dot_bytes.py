"""Recognises sums of four products of bytes, which one instruction makes: the bytes of two words of 32 bits, each multiplied with its partner.
Those of more words are one operation: without VNNI they are added in 16 bits first.

Quantised weights are read so: a word holds four codes, or eight of four bits, and another word four activations.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import I8, I32, element_of
from kernelpack.passes.canonicalize.arithmetic import constant_of, made_by

_VIEWS = ("tt.splat", "tt.broadcast", "tt.expand_dims")
_BYTES = 4


@dataclass(frozen=True)
class _Byte:
    """A byte of a word: its bits from `shift` on that `mask` keeps, seen through `views`, the last one first."""

    word: Value
    shift: int
    mask: int
    signed: bool
    views: tuple[Operation, ...] = ()

    @property
    def place(self) -> int:
        """Which of the word's four bytes it is."""
        return self.shift // 8

    @property
    def whole(self) -> tuple[object, ...]:
        """What the four bytes of a word have in common."""
        views = tuple((view.name, view.result.type, tuple(view.attributes.items())) for view in self.views)
        return id(self.word), self.shift % 8, self.mask, self.signed, views


def dot_bytes(module: Operation) -> Operation:
    """Rewrites a module in place and returns it. What nobody uses any more stays. Integers wrap, so the order of a sum is free."""
    for op in list(module.walk()):
        if _is_sum(op) and not _goes_on(op):
            terms: list[Value] = []
            _add_terms(op.result, op, terms)
            _rewrite(op, terms)
    return module


def _is_sum(op: Operation | None) -> bool:
    return op is not None and op.name == "arith.addi" and element_of(op.result.type) == I32


def _goes_on(op: Operation) -> bool:
    """Whether a sum is only a term of another one beside it."""
    users = op.result.users()
    return len(users) == 1 and _is_sum(users[0]) and users[0].parent is op.parent and users[0].operands.count(op.result) == 1


def _add_terms(value: Value, root: Operation, terms: list[Value]) -> None:
    op = value.defining_op
    if op is not None and _is_sum(op) and (op is root or (op.parent is root.parent and _goes_on(op))):
        for term in op.operands:
            _add_terms(term, root, terms)
    else:
        terms.append(value)


def _rewrite(root: Operation, terms: list[Value]) -> None:
    groups: dict[tuple[object, ...], dict[int, tuple[Value, _Byte, _Byte]]] = defaultdict(dict)
    for term in terms:
        pair = _bytes_of(term)
        if pair is not None:
            groups[pair[0].whole, pair[1].whole].setdefault(pair[0].place, (term, *pair))
    whole = [group for group in groups.values() if len(group) == _BYTES]
    if not whole:
        return
    rest = list(terms)
    for group in whole:
        for term, *_ in group.values():
            rest.remove(term)
    build = Builder.before(root)
    kind = root.result.type
    total = rest[0] if rest else build.constant(0, kind)
    for term in rest[1:]:
        total = build.value("arith.addi", [total, term])
    alike: dict[tuple[bool, bool, int], list[Value]] = defaultdict(list)
    for group in whole:
        _, a, b = group[0]
        alike[a.signed, b.signed, a.mask] += [_word(build, a), _word(build, b)]
    for (a_signed, b_signed, most), factors in alike.items():
        attributes = {"a_signed": a_signed, "b_signed": b_signed, "a_most": most}
        total = build.value("cpu.dot_bytes", [total, *factors], attributes)
    total.name = root.result.name
    root.replace_with(total)


def _bytes_of(term: Value) -> tuple[_Byte, _Byte] | None:
    """Returns the factors of a product of two bytes in the same place of their words: an unsigned one first."""
    product = made_by(term, "arith.muli")
    if product is None:
        return None
    a, b = (_byte(factor) for factor in product.operands)
    if a is None or b is None or a.place != b.place:
        return None
    return (a, b) if (a.signed, a.mask) <= (b.signed, b.mask) else (b, a)


def _byte(value: Value) -> _Byte | None:
    op = value.defining_op
    if op is None or element_of(value.type) != I32:
        return None
    if op.name in _VIEWS:
        inner = _byte(op.operand)
        return None if inner is None else _Byte(inner.word, inner.shift, inner.mask, inner.signed, (op, *inner.views))
    if op.name == "arith.andi":
        mask = constant_of(operand(op, "rhs"))
        return _cut(operand(op, "lhs"), int(mask), False) if mask is not None and 0 < mask <= 255 else None
    if op.name in ("arith.extsi", "arith.extui") and element_of(op.operand.type) == I8:
        cut = made_by(op.operand, "arith.trunci")
        if cut is not None and element_of(cut.operand.type) == I32:
            return _cut(cut.operand, 255, op.name == "arith.extsi")
    distance = constant_of(operand(op, "rhs")) if op.name in ("arith.shrsi", "arith.shrui") else None
    if distance == 24:  # what is left is the highest byte
        return _Byte(operand(op, "lhs"), 24, 255, op.name == "arith.shrsi")
    return None


def _cut(value: Value, mask: int, signed: bool) -> _Byte | None:
    """Returns the bits of a word that `mask` keeps after a shift to the right."""
    shifted = made_by(value, "arith.shrsi", "arith.shrui")
    distance = constant_of(operand(shifted, "rhs")) if shifted is not None else None
    if shifted is None or distance is None:
        return _Byte(value, 0, mask, signed)
    if not 0 <= distance <= 32 - mask.bit_length():
        return None
    return _Byte(operand(shifted, "lhs"), int(distance), mask, signed)


def _word(build: Builder, byte: _Byte) -> Value:
    """Returns the word of which each byte is what `byte` is of its own place."""
    word = byte.word
    if byte.shift % 8:
        word = build.value("arith.shrui", [word, build.constant(byte.shift % 8, word.type)])
    if byte.mask != 255:
        spread = int.from_bytes(bytes([byte.mask] * _BYTES), "little")
        word = build.value("arith.andi", [word, build.constant(spread, word.type)])
    for view in reversed(byte.views):
        word = build.value(view.name, [word], view.attributes, view.result.type)
    return word
