"""The dice of a probe: what a seed and an index give along each axis, and a record of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import torch

OPS = ("gelu", "layer_norm", "matmul", "mha", "rms_norm", "rope", "scaled_matmul", "silu_mul", "softmax")
"""The ops that are probed: those whose calls tests/probes/calls.py draws."""

T = TypeVar("T")
Watch = Callable[[dict[str, str]], None]
"""Is shown what was drawn so far each time that there is more of it: a case that ends the process tells nobody else."""


def ignored(drawn: dict[str, str]) -> None:
    pass


@dataclass
class Draw:
    """Draws for case `index` of a seed. `deal` goes through all values of an axis before one comes again; `any` does not."""

    seed: int
    index: int
    drawn: dict[str, str] = field(default_factory=dict)
    watch: Watch = ignored

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed} {self.index}")
        self.op = dealt(self.seed, "op", OPS, self.index)
        self.note("op", self.op)
        self.turn = self.index // len(OPS)
        torch.manual_seed(self.random.getrandbits(40))

    def deal(self, axis: str, values: Sequence[str]) -> str:
        """Returns the next value of an axis."""
        value = dealt(self.seed, axis, values, self.turn * len(OPS) + self.index % len(OPS))
        self.note(axis, value)
        return value

    def focus(self, values: Sequence[str]) -> str:
        """Returns the next of the values, one for each round of ops. What is dealt from then on is dealt to its rounds alone."""
        mine = [dealt(self.seed, "focus", values, turn) for turn in range(self.turn + 1)]
        self.note("focus", mine[-1])
        self.turn = mine.count(mine[-1]) - 1
        return mine[-1]

    def deal_from(self, axis: str, table: Mapping[str, T]) -> T:
        """The same of a table's names; returns what stands at the name."""
        return table[self.deal(axis, list(table))]

    def note(self, axis: str, value: str) -> None:
        """Records a value."""
        self.drawn[axis] = value
        self.watch(self.drawn)

    def any(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def number(self, low: int, high: int) -> int:
        """Returns an integer from `low` to `high`, both included."""
        return self.random.randint(low, high)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability


def dealt(seed: int, axis: str, values: Sequence[T], turn: int) -> T:
    """Returns what comes at a turn, where all values come once in an order of chance, then again in another."""
    round_, place = divmod(turn, len(values))
    return values[_order(f"{seed} {axis} {round_}", len(values))[place]]


@cache
def _order(name: str, count: int) -> list[int]:
    order = list(range(count))
    random.Random(name).shuffle(order)
    return order
