"""Recognises sums of four products of bytes, which one instruction makes: the bytes of two words of 32 bits, each multiplied with its partner.
Without VNNI those of more words are one operation, which adds them in 16 bits first. With it each stands where the kernel adds its last
product, and adds to the one before: who adds to several sums in turns has them made in turns, so that none waits for the last.

Quantised weights are read so: a word holds four codes, or eight of four bits, and another word four activations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass

from kernelpack.ir.core import Builder, Operation, Value
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import I8, I32, Type, element_of
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


def dot_bytes(module: Operation, *, together: bool = True) -> Operation:
    """Rewrites a module in place and returns it. What nobody uses any more stays. Integers wrap, so the order of a sum is free. `together`: a
    sum's words are one operation."""
    sums = [op for op in module.walk() if _is_sum(op)]
    roots: set[Operation] = set()
    for op in sums:
        if not _goes_on(op):
            roots.add(op)
        sides = [side for value in op.operands if (side := value.defining_op) is not None and _is_sum(side) and _goes_on(side)]
        if len(sides) == 2 and all(_is_long(side, roots) for side in sides):
            roots.update(sides)
    for op in sums:
        if op in roots:
            _rewrite(op, _terms_of(op, roots), together)
    return module


def _is_sum(op: Operation | None) -> bool:
    return op is not None and op.name == "arith.addi" and element_of(op.result.type) == I32


def _goes_on(op: Operation) -> bool:
    """Whether a sum is only a term of another one beside it."""
    users = op.result.users()
    return len(users) == 1 and _is_sum(users[0]) and users[0].parent is op.parent and users[0].operands.count(op.result) == 1


def _is_long(op: Operation, roots: Container[Operation]) -> bool:
    """Whether a sum has products of the bytes of several words, all of them whole. Two such sums that are added stay two: neither waits for the
    other."""
    terms = _terms_of(op, roots)
    products = sum(_bytes_of(term) is not None for term in terms)
    return _BYTES < products == sum(map(len, _groups_of(terms)))


def _terms_of(root: Operation, roots: Container[Operation]) -> list[Value]:
    """Returns what a sum adds up, with the terms of sums in it that are no roots."""
    terms: list[Value] = []
    waiting: list[Value] = [root.result]
    while waiting:
        value = waiting.pop()
        op = value.defining_op
        inside = op is not None and _is_sum(op) and op.parent is root.parent and _goes_on(op) and op not in roots
        if op is not None and (op is root or inside):
            waiting += reversed(op.operands)
        else:
            terms.append(value)
    return terms


_Group = dict[int, tuple[Value, _Byte, _Byte]]
"""The products of two words' bytes, by place: a term and its factors."""


def _groups_of(terms: list[Value]) -> list[_Group]:
    """Returns the products that make up whole words."""
    groups: dict[tuple[object, ...], _Group] = defaultdict(dict)
    for term in terms:
        pair = _bytes_of(term)
        if pair is not None:
            groups[pair[0].whole, pair[1].whole].setdefault(pair[0].place, (term, *pair))
    return [group for group in groups.values() if len(group) == _BYTES]


def _rewrite(root: Operation, terms: list[Value], together: bool) -> None:
    groups = _groups_of(terms)
    if not groups:
        return
    rest = list(terms)
    for group in groups:
        for term, *_ in group.values():
            rest.remove(term)
    if together:
        build = Builder.before(root)
        total = _in_one(build, groups, _added(build, rest, root.result.type))
    else:
        total = _in_turns(root, groups, rest)
    total.name = root.result.name
    root.replace_with(total)


def _added(build: Builder, terms: list[Value], kind: Type) -> Value:
    total = terms[0] if terms else build.constant(0, kind)
    for term in terms[1:]:
        total = build.value("arith.addi", [total, term])
    return total


def _in_one(build: Builder, groups: list[_Group], total: Value) -> Value:
    alike: dict[tuple[bool, bool, int], list[Value]] = defaultdict(list)
    for group in groups:
        _, a, b = group[0]
        alike[a.signed, b.signed, a.mask] += [_word(build, a), _word(build, b)]
    for (a_signed, b_signed, most), factors in alike.items():
        attributes = {"a_signed": a_signed, "b_signed": b_signed, "a_most": most}
        total = build.value("cpu.dot_bytes", [total, *factors], attributes)
    return total


def _in_turns(root: Operation, groups: list[_Group], rest: list[Value]) -> Value:
    assert root.parent is not None
    places = {op: number for number, op in enumerate(root.parent.operations)}

    def last(group: _Group) -> Operation:
        """Returns the operation that adds the last of a word's products to a sum: to this one, or to an earlier one that has it, too."""
        added = [user for term, *_ in group.values() for user in term.users() if _is_sum(user) and user in places]
        return max((user for user in added if places[user] <= places[root]), key=places.__getitem__)

    found = [(last(group), group) for group in groups]
    found.sort(key=lambda pair: places[pair[0]])
    first, _ = found[0]
    early = [term for term in rest if term.defining_op is None or places.get(term.defining_op, -1) < places[first]]
    total = _added(Builder.before(first), early, root.result.type)
    for place, group in found:
        _, a, b = group[0]
        build = Builder.before(place)
        attributes = {"a_signed": a.signed, "b_signed": b.signed, "a_most": a.mask}
        total = build.value("cpu.dot_bytes", [total, _word(build, a), _word(build, b)], attributes)
    late = [term for term in rest if term not in early]
    return _added(Builder.before(root), [total, *late], root.result.type)


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
