"""What tells the variants of a launch's point apart: sets of facts, in the order in which a call prefers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelpack.facts import EQUAL_TO, Fact, Test

Assumption = tuple[Fact, ...]
"""The facts that a variant assumes of a call, sorted; empty for the variant that assumes nothing."""
Tests = Mapping[str, Test]
"""The backends' tests, by property."""


def is_implied(fact: Fact, given: Iterable[Fact], tests: Tests) -> bool:
    """Whether a fact holds wherever all the given ones hold."""
    test = tests[fact.property]
    for other in given:
        if other.parameter == fact.parameter:
            if tests[other.property] is EQUAL_TO and not test.of_reach and test.holds(other.value, fact.value):
                return True
            if other.property == fact.property and test.implies(other.value, fact.value):
                return True
    return False


def implies(assumption: Assumption, other: Assumption, tests: Tests) -> bool:
    """Whether every call that fits one assumption fits the other."""
    return all(is_implied(fact, assumption, tests) for fact in other)


def is_contradiction(assumption: Assumption, tests: Tests) -> bool:
    """Whether no call can fit an assumption, e.g. because a number would have to be 1 and divisible by 16."""
    constants = {fact.parameter: fact.value for fact in assumption if tests[fact.property] is EQUAL_TO}
    return any(
        fact.parameter in constants
        and not tests[fact.property].of_reach
        and not tests[fact.property].holds(constants[fact.parameter], fact.value)
        for fact in assumption
    )


def ordered(assumptions: Iterable[Assumption], tests: Tests) -> list[Assumption]:
    """Returns the assumptions without duplicates, each before those that it implies, otherwise in the order given."""
    found = list(dict.fromkeys(assumptions))
    strength = {one: sum(implies(one, other, tests) for other in found) for one in found}
    return sorted(found, key=lambda one: (-strength[one], -len(one)))


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of a launch in the order in which a call tries them, and their facts in groups: two facts are in one group if the
    same assumptions contain them, so that one bit tests both."""

    sets: tuple[Assumption, ...]
    groups: tuple[tuple[Fact, ...], ...]

    @staticmethod
    def of(assumptions: Iterable[Assumption], tests: Tests) -> Assumptions:
        """Returns the assumptions of a launch, given those of its variants."""
        sets = ordered(assumptions, tests)
        groups: dict[tuple[bool, ...], list[Fact]] = {}
        for fact in sorted({fact for one in sets for fact in one}):
            groups.setdefault(tuple(fact in one for one in sets), []).append(fact)
        return Assumptions(tuple(sets), tuple(map(tuple, groups.values())))

    def groups_of(self, assumption: Assumption) -> list[int]:
        """Returns the numbers of the groups that make up an assumption."""
        return [number for number, group in enumerate(self.groups) if group[0] in assumption]

    def bit(self, assumption: Assumption) -> int:
        """Returns the place of an assumption in the order."""
        return self.sets.index(assumption)


def mask_of(bits: Sequence[int]) -> int:
    """Returns the integer in which these bits are set."""
    return sum(1 << bit for bit in bits)
