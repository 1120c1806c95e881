"""Steps of random kernels about order and axes: tiles made from others in many ways, memory that is read and written again and again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.language.random_kernels import CELLS, MEMORY, POINTERS, SLOT, Draw, Shape, Value, places
from tests.language.random_steps import RichWriter

Way = Callable[[str, Shape], Value]


class FlowWriter(RichWriter):
    """Writes steps of this file and of its bases. The last slot of cells is what `touch` reads and writes."""

    def __init__(self, draw: Draw, exact: bool) -> None:
        super().__init__(draw, exact)
        size = self.extent // 4
        self.cube = self.one_of(self.cube, (1, size, 4), (size, 1, 8))
        self.cells = 1
        self.making = 0
        self.aliased = self.chance(4)
        self.mixed = self.chance(3)
        if not self.mixed:  # tiles of one type are handed on as they are
            self.types = {kind: (self.one_of(*names),) for kind, names in POINTERS.items()}

    def steps(self) -> list[Any]:
        """Returns the steps of all classes, or in most kernels few that meet often."""
        own = [self.touch] * 4 + [self.follow] if self.exact else []
        if self.depth == 0:
            own.append(self.leave)
        if self.mixed:
            return own + super().steps()
        nested = [self.loop, self.branch, self.branch] if self.depth < 2 else []
        return own + nested + [self.meet] * 4 + [self.compute, self.reduce, self.squeeze, self.scan, self.join]

    def carried(self) -> list[Value]:
        if self.mixed or not self.exact:
            return super().carried()
        kinds = [self.one_of("int", "float", "int", "float", "bool", "pointer") for _ in range(self.draw(st.integers(1, 3)))]
        values = [self.pick(kind, self.vector, self.wide, self.tall, self.square, self.cube) for kind in kinds]
        return [self.let(x.name, x.kind, x.shape) for x in values]

    # ---- tiles made from others ----

    def make(self, kind: str, shape: Shape) -> Value:
        """Returns a new tile, made from one whose elements lie otherwise: what runs along which axis differs from tile to tile."""
        if kind == "pointer":
            index = self.pick("int", shape)
            return self.let(f"{self.own('cells')} + ({index.name}.to(tl.int32) & {SLOT // 2 - 1})", kind, shape)
        if not shape or kind == "bool" or self.making == 2 or self.chance(3):
            return super().make(kind, shape)
        ways: list[Way] = [self.turned, self.reshaped, self.spread, self.looped]
        if math.prod(shape) * 4 <= SLOT:
            ways += [self.reduced, self.reduced, self.parted]
        if self.exact:
            ways += [self.gathered, self.scanned]
        if self.exact and len(shape) == 2 and min(shape) >= 16 and max(shape) <= 32:
            ways += [self.multiplied, self.multiplied]
        if shape[-1] > 1:
            ways.append(self.interleaved)
        self.making += 1
        made: Value = self.one_of(*ways)(kind, shape)
        self.making -= 1
        return made

    def offsets(self, shape: Shape) -> str:
        size, at = math.prod(shape), places(shape)
        if size > MEMORY // 4 and len(shape) != 2:
            return self.one_of(at, f"{size - 1} - ({at})")
        return super().offsets(shape)

    def axis_of(self, shape: Shape) -> int:
        return self.draw(st.integers(0, len(shape) - 1))

    def reduced(self, kind: str, shape: Shape) -> Value:
        axis = self.draw(st.integers(0, len(shape)))
        x = self.pick(kind, (*shape[:axis], self.one_of(2, 4, 1), *shape[axis:]))
        return self.let(
            f"tl.{self.one_of('max', 'min', *(['sum', 'xor_sum'] if kind == 'int' and self.exact else []))}({x.name}, {axis})",
            kind,
            shape,
        )

    def turned(self, kind: str, shape: Shape) -> Value:
        order = self.draw(st.permutations(range(len(shape))))
        x = self.pick(kind, tuple(shape[order.index(axis)] for axis in range(len(shape))))
        return self.let(f"tl.permute({x.name}, {tuple(order)})" if len(shape) > 1 else f"{x.name}", kind, shape)

    def reshaped(self, kind: str, shape: Shape) -> Value:
        flat = (math.prod(shape),)
        x = self.pick(kind, self.one_of(shape[::-1], flat, (*shape, 1), (*shape[:-1], 1, shape[-1])))
        return self.let(f"tl.reshape({x.name}, {list(shape)})", kind, shape)

    def parted(self, kind: str, shape: Shape) -> Value:
        x = self.pick(kind, (*shape, 2))
        names = self.names(2)
        self.say(f"{', '.join(names)} = tl.split({x.name})")
        self.values += [Value(name, kind, shape) for name in names]
        return self.values[-1]

    def interleaved(self, kind: str, shape: Shape) -> Value:
        x, y = (self.pick(kind, (*shape[:-1], shape[-1] // 2)) for _ in range(2))
        return self.let(f"tl.interleave({x.name}, {y.name}.to({x.name}.dtype))", kind, shape)

    def spread(self, kind: str, shape: Shape) -> Value:
        axis = self.axis_of(shape)
        x = self.pick(kind, (*shape[:axis], *shape[axis + 1 :]))
        text = f"tl.expand_dims({x.name}, {axis})" if x.shape else x.name
        return self.let(f"tl.broadcast_to({text}, {list(shape)})", kind, shape)

    def gathered(self, kind: str, shape: Shape) -> Value:
        axis = self.axis_of(shape)
        extent = shape[axis] * (1 if math.prod(shape) == SLOT else self.one_of(1, 2))
        x, index = self.pick(kind, (*shape[:axis], extent, *shape[axis + 1 :])), self.pick("int", shape)
        return self.let(f"tl.gather({x.name}, {index.name}.to(tl.int32) & {extent - 1}, {axis})", kind, shape)

    def scanned(self, kind: str, shape: Shape) -> Value:
        x, axis, reverse = self.pick("int", shape), self.axis_of(shape), self.chance(2)
        made = self.let(f"tl.cumsum({x.name}, {axis}, reverse={reverse})", "int", shape)
        return made if kind == "int" else self.let(f"({made.name} & 255).to(tl.float32)", kind, shape)

    def looped(self, kind: str, shape: Shape) -> Value:
        x, other, (i,) = self.let(self.pick(kind, shape).name, kind, shape), self.pick(kind, shape), self.names(1)
        self.say(f"for {i} in range({self.one_of('n & 3', '2')}):")
        text = f"{x.name} + {other.name}" if self.exact else f"{x.name} * 0.5 + {other.name}"
        self.say(f"    {x.name} = ({text}).to({x.name}.dtype)")
        return x

    def multiplied(self, kind: str, shape: Shape) -> Value:
        """Small whole numbers: every product and sum is exact in every type."""
        deep = 32
        x, y = self.pick("int", (shape[0], deep)), self.pick("int", (deep, shape[1]))
        if kind == "int":
            return self.let(f"tl.dot({x.name}.to(tl.int8), {y.name}.to(tl.int8), out_dtype=tl.int32)", kind, shape)
        to = f".to(tl.int32) & 7).to(tl.{self.one_of('float16', 'bfloat16')})"
        return self.let(f"tl.dot(({x.name}{to}, ({y.name}{to})", kind, shape)

    def meet(self) -> None:
        """The sides of a branch give tiles that were made in different ways, or long before."""
        kind, shape = self.kind(), self.one_of(self.vector, self.wide, self.tall, self.square, self.cube)
        result = self.let(self.pick(kind, shape).name, kind, shape)
        outer = list(self.values)
        for head in (f"if {self.one_of('n > 2', 'pid == 0')}:", "else:"):
            self.say(head)
            self.indent += "    "
            other = (self.make if self.chance(2) else self.pick)(kind, shape)
            self.say(f"{result.name} = {other.name}.to({result.name}.dtype)")
            self.values, self.indent = list(outer), self.indent[4:]

    # ---- memory and order ----

    def own(self, pointer: str) -> str:
        """Returns the start of what `touch` reads and writes."""
        return f"{pointer} + pid * {CELLS * SLOT}"

    def follow(self) -> None:
        """Reads through pointers that were computed before."""
        x = self.pick("pointer", self.vector, self.wide, self.cube)
        self.let(f"tl.load({x.name})", "int", x.shape)

    def touch(self) -> None:
        """Reads or writes memory that other steps touch, too: a tile at places that overlap theirs, all or in part, or one element."""
        start = self.own(self.one_of("cells", "again") if self.aliased else "cells")
        shape = self.one_of((), self.vector, self.wide, self.tall, self.cube)
        at = places(shape)
        if not shape:
            at = self.one_of("0", "3", "n", "pid + 9")
        elif not self.aliased:  # pointers of two arguments may meet only at the same places of their tiles
            turned = (
                places(shape[::-1])
                if len(shape) == 1
                else f"tl.permute({places(shape[::-1])}, {tuple(reversed(range(len(shape))))})"
            )
            at = self.one_of(
                at,
                f"{at} + 1",
                f"{at} + 8",
                f"({at}) * 2",
                f"({at}) ^ 6",
                f"{math.prod(shape) - 1} - ({at})",
                f"{at} + n",
                turned,
            )
        mask = self.one_of("", "", f"({at}) % 3 != pid", f"{at} < n + 4")
        if self.chance(2):
            known = f", mask={mask}, other={self.one_of(0, 7)}" if mask else ""
            self.let(f"tl.load({start} + ({at}){known})", "int", shape)
            return
        value = self.pick("int", shape)
        self.say("tl.debug_barrier()")
        self.say(f"tl.store({start} + ({at}), {value.name}.to(tl.int32){', mask=' + mask if mask else ''})")
        self.say("tl.debug_barrier()")

    def leave(self) -> None:
        self.say(f"if {self.one_of('n > 9', 'pid > n', 'n % 4 == 3 + pid * 8')}:")
        self.say("    return")
