"""Formulas over vectors of floats, written with Python's operators: every operator emits an instruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelpack.llvm.text import Emitter, Val, element_type, literal, suffix, vector_type, vector_width


@dataclass(frozen=True)
class Truth:
    """A comparison's results. `a & b` and `a | b` combine them."""

    em: Emitter
    val: Val

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.em, self.em.binary("and", self.val, other.val))

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.em, self.em.binary("or", self.val, other.val))


@dataclass(frozen=True, eq=False)
class Number:
    """A float, or a vector of them. Operations are rounded once each, in the order in which they are written."""

    em: Emitter
    val: Val

    def constant(self, value: float) -> Number:
        """Returns a constant of the same type."""
        return Number(self.em, literal(value, self.val.type))

    def _of(self, value: Number | float) -> Val:
        return value.val if isinstance(value, Number) else literal(value, self.val.type)

    def _binary(self, opcode: str, left: Number | float, right: Number | float) -> Number:
        return Number(self.em, self.em.binary(opcode, self._of(left), self._of(right)))

    def __add__(self, other: Number | float) -> Number:
        return self._binary("fadd", self, other)

    def __radd__(self, other: float) -> Number:
        return self._binary("fadd", other, self)

    def __sub__(self, other: Number | float) -> Number:
        return self._binary("fsub", self, other)

    def __rsub__(self, other: float) -> Number:
        return self._binary("fsub", other, self)

    def __mul__(self, other: Number | float) -> Number:
        return self._binary("fmul", self, other)

    def __rmul__(self, other: float) -> Number:
        return self._binary("fmul", other, self)

    def __truediv__(self, other: Number | float) -> Number:
        return self._binary("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Number:
        return self._binary("fdiv", other, self)

    def __neg__(self) -> Number:
        return self._binary("fsub", -0.0, self)

    def _compare(self, predicate: str, other: Number | float) -> Truth:
        return Truth(self.em, self.em.compare("fcmp", predicate, self.val, self._of(other)))

    def __lt__(self, other: Number | float) -> Truth:
        return self._compare("olt", other)

    def __gt__(self, other: Number | float) -> Truth:
        return self._compare("ogt", other)

    def equals(self, other: Number | float) -> Truth:
        return self._compare("oeq", other)

    def differs(self, other: Number | float) -> Truth:
        return self._compare("une", other)

    def where(self, condition: Truth, other: Number | float) -> Number:
        """Returns this number where the condition holds, else the other."""
        return Number(self.em, self.em.select(condition.val, self.val, self._of(other)))

    def unless_any(self, condition: Truth, other: Callable[[], Number]) -> Number:
        """Returns this number, or what `other` makes where the condition holds for any lane. A branch keeps that out of the way."""
        em, kind = self.em, condition.val.type
        found = condition.val
        if kind != "i1":
            found = em.call("i1", f"llvm.vector.reduce.or.{suffix(kind)}", [found])
        slot = em.alloca(self.val.type)
        inside, after = em.new_label("any"), em.new_label("none")
        em.store(self.val, slot, 4)
        em.branch(found, inside, after)
        em.label(inside)
        em.store(other().val, slot, 4)
        em.jump(after)
        em.label(after)
        return Number(em, em.load(self.val.type, slot, 4))

    def intrinsic(self, name: str, *others: Number | float) -> Number:
        """Returns what an intrinsic of LLVM makes of numbers of one type: `x.intrinsic("fma", y, z)`."""
        kind = self.val.type
        arguments = [self.val, *(self._of(other) for other in others)]
        return Number(self.em, self.em.call(kind, f"llvm.{name}.{suffix(kind)}", arguments))

    def converted(self, element: str) -> Number:
        """Returns the number as `float` or `double`."""
        here = element_type(self.val.type)
        if here == element:
            return self
        opcode = "fpext" if element == "double" else "fptrunc"
        return Number(self.em, self.em.cast(opcode, self.val, vector_type(element, vector_width(self.val.type))))
