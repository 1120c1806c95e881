"""Random kernels as source text, from the language's common rows: small, well typed, free of undefined results.

Integers, floats and booleans are told apart; their widths are the front end's business, since promotion is part of what is
tested. Whatever a kernel computes it stores, widened to 64 bits without loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.language.random_expressions import CONVERSIONS, EXACT, PRELUDE, ROUNDED

SLOT = 1024  # elements that one stored value takes in an output
MEMORY = 1024  # elements of an input
EXTENTS = (8, 32)  # of a kernel's tiles along an axis: a part of a vector register, and more than one
PROGRAMS = 2
CELLS = 8
"""How many slots of memory a program has that kernels update atomically."""
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
FACTORS = ("float16", "bfloat16", "float32")  # of products: small whole numbers
POINTERS = {"int": INTEGERS, "float": FLOATS}
ATOMICS = ("add", "max", "min", "and", "or", "xor", "xchg")

Draw = Callable[[st.SearchStrategy[Any]], Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A variable of a kernel: `kind` is "int", "float" or "bool"."""

    name: str
    kind: str
    shape: Shape


@dataclass(frozen=True)
class RandomKernel:
    """Source of `kernel(p_TYPE for each type, m_TYPE of FACTORS, cells, again, whole, real, n, s)`, which stores up to `slots` values a program."""

    source: str
    slots: int

    def __repr__(self) -> str:
        return self.source

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # what Hypothesis prints
        printer.text(self.source)


class Writer:
    """Writes statements; `values` are the variables in sight, `prelude` the functions that they call."""

    prelude = PRELUDE

    def __init__(self, draw: Draw, exact: bool) -> None:
        self.draw = draw
        self.exact = exact
        extent = self.extent = self.one_of(*EXTENTS)
        self.vector, self.wide, self.tall, self.square = (
            (extent,),
            (extent // 2, extent),
            (extent, extent // 2),
            (extent, extent),
        )
        self.types = POINTERS
        self.lines: list[str] = []
        self.indent = "    "
        self.values = [Value("pid", "int", ()), Value("n", "int", ()), Value("s", "float", ())]
        self.count = 0
        self.cells = 0
        self.depth = 0

    # ---- choices ----

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def chance(self, one_in: int) -> bool:
        return self.draw(st.integers(1, one_in)) == 1

    def kind(self) -> str:
        return self.one_of("int", "float") if self.exact else "float"

    def pick(self, kind: str, *shapes: Shape) -> Value:
        """Returns a variable of a kind, and of one of these shapes; makes one where there is none."""
        found = [value for value in self.values if value.kind == kind and (not shapes or value.shape in shapes)]
        if found and not self.chance(4):
            return self.one_of(*found)
        shape = self.one_of(*(shapes or ((), self.vector, self.wide, self.tall)))
        return self.make(kind, shape)

    def make(self, kind: str, shape: Shape) -> Value:
        """Returns a new variable."""
        return self.convert("bool", shape) if kind == "bool" else self.load(kind, shape)

    def operand(self, value: Value) -> str:
        """Returns what a variable can be combined with: a variable of its shape or a scalar one, or a number."""
        if value.kind != "bool" and self.chance(4):
            return str(self.one_of(1, 2, 7, 100) if value.kind == "int" else self.one_of(0.5, 2, 3.0, -1.25))
        return self.pick(value.kind, value.shape, ()).name

    # ---- statements ----

    def say(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def let(self, text: str, kind: str, shape: Shape) -> Value:
        value = Value(*self.names(1), kind, shape)
        self.say(f"{value.name} = {text}")
        self.values.append(value)
        return value

    def names(self, count: int) -> list[str]:
        """Returns names of new variables."""
        self.count += count
        return [f"v{self.count - count + index}" for index in range(count)]

    def apply(self, text: str, value: Value, kind: str) -> Value:
        """Fills x and y into an expression over elements."""
        words = {"x": value.name, "y": self.operand(value)} if "y" in text else {"x": value.name}
        return self.let(_substitute(text, words), kind, value.shape)

    def offsets(self, shape: Shape) -> str:
        """Returns where a tile lies in memory: in order, strided, reversed, overlapping."""
        if not shape:
            return f"{self.draw(st.integers(0, MEMORY - 1))} + pid - pid"
        if len(shape) == 1:
            i = f"tl.arange(0, {shape[0]})"
            return self.one_of(i, f"{i} * 3 + pid", f"{shape[0] - 1} - {i}", f"({i} + n) % {shape[0]}", f"{i} + n")
        rows, columns = f"tl.arange(0, {shape[0]})[:, None]", f"tl.arange(0, {shape[1]})[None, :]"
        return self.one_of(
            f"{rows} * {shape[1]} + {columns}", f"{rows} + {columns} * {shape[0]}", f"({rows} * 5 + {columns} * 3) % {MEMORY}"
        )

    def load(self, kind: str, shape: Shape) -> Value:
        pointer, at = f"p_{self.one_of(*self.types[kind])}", self.offsets(shape)
        if self.chance(6):
            at = f"({at}).to(tl.int64) + {1 << 33} - {1 << 33}"
        more = ""
        if self.chance(2):
            mask = (
                f"{at} < {self.one_of('n', 20, 5, self.extent - 1)}"
                if not self.exact or self.chance(2)
                else f"({at}) % 3 != pid"
            )
            more = f", mask={mask}, other={self.one_of(0, 7 if kind == 'int' else 1.5)}"
        return self.let(f"tl.load({pointer} + ({at}){more}){'' if self.exact else '.to(tl.float32)'}", kind, shape)

    def gather(self) -> None:
        index, kind = self.pick("int", self.vector, self.wide), self.kind()
        self.let(f"tl.load(p_{self.one_of(*POINTERS[kind])} + ({index.name}.to(tl.int32) & {MEMORY - 1}))", kind, index.shape)

    def compute(self) -> None:
        kind = self.one_of("int", "int", "float", "float", "bool") if self.exact else "float"
        self.apply(self.one_of(*(EXACT[kind] if self.exact else ROUNDED)), self.pick(kind), kind)

    def convert(self, to: str | None = None, *shapes: Shape) -> Value:
        source, target = self.one_of(*(pair for pair in CONVERSIONS if to in (None, pair[1])))
        return self.apply(self.one_of(*CONVERSIONS[source, target]), self.pick(source, *shapes), target)

    def reshape(self) -> None:
        x = self.pick(self.kind(), self.vector, self.wide, self.tall)
        if x.shape == self.vector:
            other = self.pick(x.kind, self.vector)
            self.let(
                self.one_of(
                    f"{x.name}[:, None] + {other.name}[None, :]",
                    f"tl.expand_dims({x.name}, 1) * tl.expand_dims({other.name}, 0)",
                    f"tl.broadcast_to({x.name}[None, :], {list(self.square)})",
                ),
                x.kind,
                self.square,
            )
            return
        flipped = x.shape[::-1]
        text = self.one_of("{0}.T", "tl.trans({0})", "tl.permute({0}, (1, 0))", "tl.reshape({0}, {1})", "{0}.reshape({1})")
        self.let(text.format(x.name, list(flipped)), x.kind, flipped)

    def reduce(self) -> None:
        x = self.pick(self.kind(), self.vector, self.wide, self.tall, self.square)
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        left = x.shape[:axis] + x.shape[axis + 1 :]
        sums = x.kind == "int" or not self.exact  # the order of a float sum is free
        what = self.one_of(
            *(["sum", "all"] if sums else []), *(["combine", "place"] if x.kind == "int" else []), "max", "min", "keep"
        )
        if what == "all":
            self.let(f"tl.sum({x.name})", x.kind, ())
        elif what == "combine":
            self.let(f"tl.reduce({x.name}.to(tl.int32), {axis}, parity)", x.kind, left)
        elif what == "place":
            self.let(f"tl.{self.one_of('argmax', 'argmin')}({x.name}, {axis})", x.kind, left)
        elif what == "keep":
            self.let(f"{x.name} + tl.max({x.name}, {axis}, keep_dims=True)", x.kind, x.shape)
        else:
            self.let(f"tl.{what}({x.name}, axis={axis})", x.kind, left)

    def reduce_pairs(self) -> None:
        """Reduces a tile together with another one, by a function of two pairs."""
        x = self.pick(self.kind(), self.vector, self.wide, self.tall)
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        at = self.let(f"tl.arange(0, {x.shape[axis]})", "int", (x.shape[axis],))
        lined = at.name if len(x.shape) == 1 else f"{at.name}[:, None]" if axis == 0 else f"{at.name}[None, :]"
        names = self.names(2)
        known = x.name if x.kind == "int" else f"tl.where({x.name} == {x.name}, {x.name}, 0)"
        self.say(f"{', '.join(names)} = tl.reduce(({known}, {lined} + tl.zeros({list(x.shape)}, tl.int32)), {axis}, larger)")
        left = x.shape[:axis] + x.shape[axis + 1 :]
        self.values += [Value(names[0], x.kind, left), Value(names[1], "int", left)]

    def scan(self) -> None:
        x = self.pick("int" if self.exact else "float", self.vector, self.wide, self.tall, self.square)
        axis, reverse = self.draw(st.integers(0, len(x.shape) - 1)), self.chance(2)
        what = self.one_of("cumsum", "cumprod", "associative_scan", "pairs") if self.exact else "cumsum"
        if what == "pairs":
            names = self.names(2)
            both = f"({x.name}.to(tl.int32), {x.name}.to(tl.int32) * 3 + 1)"
            self.say(f"{', '.join(names)} = tl.associative_scan({both}, {axis}, compose, reverse={reverse})")
            self.values += [Value(name, "int", x.shape) for name in names]
        elif what == "associative_scan":
            self.let(f"tl.associative_scan({x.name}.to(tl.int32), {axis}, parity, reverse={reverse})", "int", x.shape)
        else:
            self.let(f"tl.{what}({x.name}, {axis}, reverse={reverse})", x.kind, x.shape)

    def join(self) -> None:
        """Puts two tiles together and takes them apart in another way."""
        x = self.pick(self.kind(), self.vector, self.wide, self.tall)
        both = f"{x.name}, {self.pick(x.kind, x.shape).name}.to({x.name}.dtype)"
        what = self.one_of("split", "interleave", "sum", "halves")
        if what == "split":
            names = self.names(2)
            self.say(f"{', '.join(names)} = tl.split(tl.join({both}))")
            self.values += [Value(name, x.kind, x.shape) for name in names]
        elif what == "interleave" and x.shape == self.tall:
            self.let(f"tl.interleave({both})", x.kind, self.square)
        elif what == "sum" and (x.kind == "int" or not self.exact):
            self.let(f"tl.sum(tl.join({both}), {len(x.shape)})", x.kind, x.shape)
        elif what == "halves":
            names = self.names(2)
            halves = (*x.shape[:-1], x.shape[-1] // 2)
            self.say(f"{', '.join(names)} = tl.split(tl.reshape({x.name}, {[*halves, 2]}))")
            if x.shape in (self.vector, self.square) and halves in (self.vector, self.wide, self.tall, self.square):
                self.values += [Value(name, x.kind, halves) for name in names]
            else:
                self.let(f"tl.interleave({names[1]}, {names[0]})", x.kind, x.shape)
        else:
            self.let(f"tl.max(tl.join({both}), {len(x.shape)})", x.kind, x.shape)

    def update(self) -> None:
        """Updates memory that no other element touches, atomically, and uses what was there."""
        if self.cells == CELLS or self.depth:
            return
        x = self.pick("int", self.vector, self.wide, self.tall)
        i = "tl.arange(0, {})"
        at = i.format(x.shape[0])
        if len(x.shape) == 2:
            at = f"{at}[:, None] * {x.shape[1]} + {i.format(x.shape[1])}[None, :]"
        place = f"cells + (pid * {CELLS} + {self.cells}) * {SLOT} + (({at}) {self.one_of('', '* 2', '^ 3')})"
        self.cells += 1
        mask = self.one_of("", f"({at}) % 3 != pid", f"{x.name} > 5")
        call = f"tl.atomic_{self.one_of(*ATOMICS)}({place}, {x.name}.to(tl.int32)"
        if mask:  # what a masked element gets is undefined
            self.let(f"tl.where({mask}, {call}, mask={mask}), 0)", "int", x.shape)
        else:
            self.let(f"{call})", "int", x.shape)

    def exchange(self) -> None:
        """Replaces what memory holds where it is what is expected."""
        if self.cells == CELLS or self.depth:
            return
        x = self.pick("int", self.vector)
        place = f"cells + (pid * {CELLS} + {self.cells}) * {SLOT} + tl.arange(0, {x.shape[0]})"
        self.cells += 1
        expected = self.one_of(f"tl.load({place})", f"{x.name}.to(tl.int32)", f"tl.zeros([{x.shape[0]}], tl.int32) + 3")
        self.let(f"tl.atomic_cas({place}, {expected}, {x.name}.to(tl.int32))", "int", x.shape)

    def order(self) -> None:
        """Orders and picks elements."""
        x = self.pick("int" if self.exact else "float", self.vector, self.wide, self.tall)
        what = self.one_of("sort", "flip", "gather", "histogram", "cat", "topk")
        size = x.shape[-1]
        if what == "sort":
            self.let(f"tl.sort({x.name}, descending={self.chance(2)})", x.kind, x.shape)
        elif what == "flip":
            self.let(f"tl.flip({x.name}, {self.draw(st.integers(0, len(x.shape) - 1))})", x.kind, x.shape)
        elif what == "gather":
            index = self.pick("int", x.shape) if self.exact else self.let(f"tl.flip(tl.arange(0, {size}), 0)", "int", (size,))
            at = f"({index.name}.to(tl.int32) & {size - 1})" + (
                "" if index.shape == x.shape else f" + tl.zeros({list(x.shape)}, tl.int32)"
            )
            self.let(f"tl.gather({x.name}, {at}, {len(x.shape) - 1})", x.kind, x.shape)
        elif what == "histogram" and self.exact and len(x.shape) == 1:
            self.let(f"tl.histogram({x.name}.to(tl.int32) & 15, {self.extent})", "int", self.vector)
        elif what == "cat" and self.exact:
            self.let(f"tl.sum(tl.cat({x.name}, {x.name} * 3, can_reorder=True).to(tl.int64))", "int", ()) if len(
                x.shape
            ) == 1 else None
        elif what == "topk" and x.shape == self.tall and size > 1:
            self.let(f"tl.sum(tl.topk({x.name}, {size // 2}), 1)", x.kind, (x.shape[0],))

    def block(self) -> None:
        """Reads a block of a tensor, which may lie outside of it in part."""
        shape = self.one_of(self.wide, self.tall)
        kind = self.one_of("int", "float")
        pointer = {"int": self.one_of("p_int32", "p_int64"), "float": self.one_of("p_float32", "p_float64")}[kind]
        rows, columns = self.one_of("n + 3", "16", "31"), self.one_of("32", "20")
        at = self.one_of("[0, 0]", "[pid * 8, 4]", "[n, 0]", "[1, 3]")
        if self.chance(2):
            self.let(
                f"tl.make_tensor_descriptor({pointer}, [{rows}, {columns}], [{columns}, 1], {list(shape)}).load({at})",
                kind,
                shape,
            )
        else:
            text = f"tl.make_block_ptr({pointer}, ({rows}, {columns}), ({columns}, 1), {at}, {shape}, (1, 0))"
            text = self.one_of(text, f"tl.advance({text}, (1, 2))")
            self.let(f'tl.load({text}, boundary_check=(0, 1), padding_option="zero")', kind, shape)

    def dot(self) -> None:
        """Small whole numbers: every product and sum is exact in every type."""
        at = "tl.arange(0, 16)[:, None] * {} + tl.arange(0, 16)[None, :]"
        kind = self.one_of("float16", "bfloat16", "float32")
        sides = [
            f"(tl.load(p_int8 + ({at.format(step)}) % {MEMORY}) & 7).to(tl.{kind})"
            for step in (self.one_of(1, 16), self.one_of(3, 5))
        ]
        more = self.one_of("", ", tl.full([16, 16], 2.0, tl.float32)", ", input_precision='ieee'")
        self.let(f"tl.dot({sides[0]}, {sides[1]}{self.one_of('', '.T')}{more})", "float", (16, 16))

    def tuples(self) -> None:
        x = self.pick(self.kind())
        y = self.pick(x.kind, x.shape)
        names = self.names(2)
        self.say(f"{', '.join(names)} = ordered({x.name}, {y.name})")
        self.values += [Value(name, x.kind, x.shape) for name in names]

    def carried(self) -> list[Value]:
        """Returns new variables that a loop or branch assigns."""
        values = [self.pick(self.one_of(self.kind(), self.kind(), "bool")) for _ in range(self.draw(st.integers(1, 3)))]
        return [self.let(x.name, x.kind, x.shape) for x in values]

    def loop(self) -> None:
        """Variables that are carried around, with something happening in the body."""
        carried = self.carried()
        head = self.one_of(
            "range(3)",
            "range(0, n & 3)",
            "range(n & 7, -3, -4)",
            "tl.range(1, 4, num_stages=2)",
            "tl.static_range(2)",
            "range(pid, 2)",
        )
        if self.chance(4):
            self.say(f"w{self.depth} = {self.one_of('n & 3', 'pid + 1')}")
            self.nested(f"while w{self.depth} > 0:", carried, f"w{self.depth}", f"w{self.depth} -= 1")
        else:
            self.nested(f"for i{self.depth} in {head}:", carried, f"i{self.depth}")

    def branch(self) -> None:
        results = self.carried()
        condition = self.pick("bool", ()).name if self.chance(2) else self.one_of("n > 4", "pid == 0", "n % 2 == 0")
        self.nested(f"if {condition}:", results, "n")
        if self.chance(2):
            self.nested("else:", results, "pid")

    def nested(self, head: str, assigned: list[Value], number: str, last: str = "") -> None:
        """Writes a block whose own variables are gone after it; it assigns variables, keeping their types, and ends with `last`."""
        self.say(head)
        outer, self.indent = list(self.values), self.indent + "    "
        self.depth += 1
        if number not in ("n", "pid"):
            self.values.append(Value(number, "int", ()))
        for _ in range(self.draw(st.integers(0, 2))):
            self.step()
        texts = [f"({self.following(value, number)}).to({value.name}.dtype)" for value in assigned]
        self.say(f"{', '.join(value.name for value in assigned)} = {', '.join(texts)}")
        if last:
            self.say(last)
        self.depth -= 1
        self.values, self.indent = outer, self.indent[4:]

    def following(self, value: Value, number: str) -> str:
        """Returns what a variable becomes in a block: another one, or something made from it."""
        if value.kind in ("bool", "pointer") or self.chance(2):
            return (self.make if self.chance(2) else self.pick)(value.kind, value.shape).name
        other = self.pick(value.kind, value.shape, ()).name
        return f"{value.name} + {other} + {number}" if self.exact else f"{value.name} * 0.5 + {other}"

    def steps(self) -> list[Callable[[], Any]]:
        steps = [self.compute] * 6 + [self.reduce, self.reshape, self.tuples, self.scan, self.join, self.order]
        if self.exact:
            steps += [
                self.convert,
                self.convert,
                self.gather,
                self.dot,
                self.reduce_pairs,
                self.update,
                self.exchange,
                self.block,
            ]
        if self.depth < 2:
            steps += [self.loop, self.branch]
        return steps

    def step(self) -> None:
        self.one_of(*self.steps())()

    def store_all(self) -> int:
        """Stores every variable at its own place; returns how many."""
        stored = [value for value in self.values if value.name.startswith("v") and value.kind != "pointer"]
        leave = self.draw(st.integers(0, 2 * len(stored)))
        for slot, value in enumerate(stored):
            if slot == leave:
                self.say("if pid == n % 2:")
                self.say("    return")
            at = places(value.shape)
            pointer, kind = ("real", "tl.float64") if value.kind == "float" else ("whole", "tl.int64")
            self.say(f"tl.store({pointer} + (pid * {len(stored)} + {slot}) * {SLOT} + {at}, {value.name}.to({kind}))")
        return len(stored)


def places(shape: Shape) -> str:
    """Returns the numbers of a tile's elements, in row-major order."""
    terms, step = [], 1
    for axis in reversed(range(len(shape))):
        around = ", ".join(":" if other == axis else "None" for other in range(len(shape)))
        terms.append(f"tl.arange(0, {shape[axis]})[{around}]" + (f" * {step}" if step > 1 else ""))
        step *= shape[axis]
    return " + ".join(reversed(terms)) or "0"


def _substitute(text: str, words: dict[str, str]) -> str:
    """Puts names in place of the lone letters x and y."""
    return re.sub(r"\b[xy]\b", lambda match: words[match[0]], text)


@st.composite
def kernels(draw: Draw, writer_class: type[Writer], exact: bool = True, steps: int = 10) -> RandomKernel:
    """Returns a kernel of up to `steps` statements.

    Exact: every backend must give the same bits. Otherwise: elementary functions and float sums, on float32 of moderate size,
    in ways that do not amplify errors.
    """
    writer = writer_class(draw, exact)
    for _ in range(draw(st.integers(2, steps))):
        writer.step()
    slots = writer.store_all()
    pointers = ", ".join([*(f"p_{kind}" for kind in (*INTEGERS, *FLOATS)), *(f"m_{kind}" for kind in FACTORS)])
    body = "\n".join(["    pid = tl.program_id(0)", *writer.lines])
    return RandomKernel(
        f"{writer_class.prelude}\n\n@kp.jit\ndef kernel({pointers}, cells, again, whole, real, n, s):\n{body}\n", slots
    )
