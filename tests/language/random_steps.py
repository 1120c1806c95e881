"""More steps of random kernels: tiles of three axes, products in loops, memory that is walked and written, calls that stay calls."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.language.random_kernels import CELLS, MEMORY, SLOT, Draw, Shape, Value, Writer, places

PRELUDE = """
@kp.jit(noinline=True)
def apart(x, y, k: tl.constexpr):
    if k == 1:
        return x * 3 + y, y
    return y, x - y


@kp.jit(noinline=True)
def heavier(x, axis: tl.constexpr):
    return tl.sum(x, axis) + tl.max(x, axis)


@kp.jit
def digits(a, b):
    count = 0
    while a > 0:
        a = a >> 2
        count += 1
    if b > 3:
        count = count * 2 + b
    return count, b - count


@kp.jit
def both(a, b, c, d):
    return tl.minimum(a, c), b | d
"""
CASTS = [
    "tl.cast(x.to(tl.float32), tl.float16, fp_downcast_rounding='rtz')", "x.to(tl.float32).to(tl.bfloat16, fp_downcast_rounding='rtz')",
    "x.to(tl.float16).to(tl.float8e5).to(tl.float32)", "x.to(tl.bfloat16).to(tl.float8e5).to(tl.float16)",
    "x.to(tl.float32).to(tl.float8e4nv).to(tl.float32)", "x.to(tl.float64).to(tl.float32).to(tl.float8e4nv).to(tl.float16)",
    "x.to(tl.bfloat16).to(tl.float8e4nv).to(tl.bfloat16)", "x.to(tl.float64).to(tl.bfloat16)", "x.to(tl.float64).to(tl.float16)",
    "x.to(tl.float16) + x.to(tl.bfloat16)", "x.to(tl.float16) * x.to(tl.float32)", "min(x, y)", "max(x, y)",
    "tl.where(x < y, x.to(tl.bfloat16), y)", "tl.floor(x.to(tl.float64))", "tl.fma(x.to(tl.float16), x.to(tl.float16), x.to(tl.float16))",
    "tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", "tl.clamp(x.to(tl.float16), -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL)",
]  # fmt: skip
WHOLE = [
    "tl.randint(n, x.to(tl.int32))", "tl.philox(pid + 7, x.to(tl.uint32), n, 0, 0)[1]", "(x.to(tl.int8) * x.to(tl.int16)) // 3", "min(x, y)", "max(x, y)",
    "x.to(tl.uint8) + x.to(tl.int16)", "x.to(tl.uint32) + x.to(tl.int32)", "x.to(tl.int64) * x.to(tl.uint8)", "x.to(tl.uint64) >> 3",
    "x.to(tl.int16) // ((x & 7).to(tl.int16) - 9)", "x.to(tl.int64) % ((x.to(tl.int64) & 255) + 1)", "x.to(tl.uint64) // 10", "x.to(tl.uint8) % 3",
    "(x == y).to(tl.int8) - (x != y)", "x if n > 3 else -x", "tl.where(x > 0, x, y) ^ (x >> 1)", "tl.swizzle2d(x.to(tl.int32) & 3, x.to(tl.int32) & 7, 4, 8, 2)[0]",
    "tl.abs(x)", "tl.clamp(x.to(tl.float32), -5.0, 5.0).to(tl.int8)", "x.to(tl.int32) * 2147483647", "x.to(tl.uint16).to(tl.int16, bitcast=True)",
]  # fmt: skip


class RichWriter(Writer):
    """Writes steps of this file and of its base."""

    prelude = Writer.prelude + PRELUDE

    def __init__(self, draw: Draw, exact: bool) -> None:
        super().__init__(draw, exact)
        size = self.extent // 4
        self.cube: Shape = (4, size, 2 * size)

    def steps(self) -> list[Any]:
        more: list[Any] = [self.casts, self.turn, self.squeeze, self.walk, self.call, self.recombine, self.whole]
        if self.exact:
            more += [
                self.product,
                self.product,
                self.write,
                self.count_bits,
                self.elements,
                self.scatter,
                self.shared_cell,
                self.places,
            ]
        return super().steps() + more * 2

    def offsets(self, shape: Shape) -> str:
        if len(shape) < 3:
            return super().offsets(shape)
        i = places(shape)
        return self.one_of(i, f"({i}) * 3 % {MEMORY}", f"{MEMORY - 1} - ({i})", f"(({i}) ^ 5) + pid * 8")

    def solid(self) -> Value:
        """Returns a tile of three axes."""
        return self.pick(self.kind(), self.cube)

    # ---- elements ----

    def casts(self) -> None:
        if self.exact:
            x = self.pick("float")
            known = self.let(f"tl.where({x.name} == {x.name}, {x.name}, 1)", "float", x.shape)  # a NaN's bits are free
            self.apply(self.one_of(*CASTS), known, "float")

    def whole(self) -> None:
        if self.exact:
            self.apply(self.one_of(*WHOLE), self.pick("int"), "int")

    def elements(self) -> None:
        """Branches and loops for each element."""
        x = self.pick("int", self.vector, self.wide, self.cube)
        names = self.names(2)
        pack = f"{x.name}.to(tl.int32) & 1023, {x.name}.to(tl.int32) >> 20"
        self.say(f"{', '.join(names)} = tl.map_elementwise(digits, {pack})")
        self.values += [Value(name, "int", x.shape) for name in names]

    def count_bits(self) -> None:
        """Loops for as long as any element is not done."""
        x = self.pick("int", self.vector, self.wide)
        (left,) = self.names(1)
        self.say(f"{left} = {x.name}.to(tl.int32) & 1023")
        count = self.let(f"tl.zeros({list(x.shape)}, tl.int32)", "int", x.shape)
        self.say(
            f"while tl.max({left}{'' if len(x.shape) == 1 else '.reshape([' + str(x.shape[0] * x.shape[1]) + '])'}, 0) > 0:"
        )
        self.say(f"    {count.name} += {left} & 1")
        self.say(f"    {left} = {left} >> {self.one_of(1, 2)}")

    # ---- shapes ----

    def turn(self) -> None:
        x = self.solid()
        order = self.one_of((2, 0, 1), (1, 2, 0), (0, 2, 1), (2, 1, 0), (1, 0, 2))
        y = self.let(f"tl.permute({x.name}, {order})", x.kind, tuple(x.shape[axis] for axis in order))
        axis = self.draw(st.integers(0, 2))
        if self.chance(2):
            self.let(f"tl.max({y.name}, {axis})", x.kind, y.shape[:axis] + y.shape[axis + 1 :])
        elif x.kind == "int":
            self.let(f"tl.cumsum({y.name}, {axis}, reverse={self.chance(2)})", "int", y.shape)
        else:
            self.let(f"tl.reshape({y.name}, {list(self.cube)})", x.kind, self.cube)

    def squeeze(self) -> None:
        x = self.solid()
        axis = self.draw(st.integers(0, 2))
        left = x.shape[:axis] + x.shape[axis + 1 :]
        sums = x.kind == "int" or not self.exact
        what = self.one_of("max", "min", "sort", "flip", "flat", "gather", "spread", *(["sum", "xor", "pair"] if sums else []))
        integral = what in ("xor", "pair") and x.kind == "int"
        if what == "sum":
            self.let(f"tl.sum({x.name}, {axis}{self.one_of('', ', dtype=tl.int64') if x.kind == 'int' else ''})", x.kind, left)
        elif what == "xor" and integral:
            self.let(f"tl.xor_sum({x.name}, {axis})", "int", left)
        elif what == "pair" and integral:
            names = self.names(2)
            self.say(f"{', '.join(names)} = tl.reduce(({x.name}, {x.name} & 7), {axis}, both)")
            self.values += [Value(name, "int", left) for name in names]
        elif what == "sort":
            self.let(f"tl.sort({x.name}, {self.one_of('2', '-1')}, descending={self.chance(2)})", x.kind, x.shape)
        elif what == "flip":
            self.let(f"tl.flip({x.name}, {axis})", x.kind, x.shape)
        elif what == "flat":
            self.let(f"tl.ravel({x.name}){self.one_of('', '.reshape([' + ', '.join(map(str, x.shape)) + '])')}", x.kind, ())
            self.values.pop()  # of either shape: only taken apart below
            self.let(f"tl.max(tl.ravel({x.name}), 0)", x.kind, ())
        elif what == "gather" and self.exact:
            index = self.pick("int", x.shape)
            self.let(f"tl.gather({x.name}, {index.name}.to(tl.int32) & {x.shape[axis] - 1}, {axis})", x.kind, x.shape)
        elif what == "spread":
            part = self.let(f"tl.max({x.name}, {axis}, keep_dims=True)", x.kind, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
            self.let(f"{x.name} - tl.broadcast_to({part.name}, {list(x.shape)})", x.kind, x.shape)
        else:
            self.let(f"tl.{what if what in ('max', 'min') else 'max'}({x.name}, {axis})", x.kind, left)

    def recombine(self) -> None:
        """Takes a tile apart along an axis of two, in some order of the axes."""
        x = self.solid()
        a, b, c = x.shape
        names = self.names(2)
        ways = [
            f"tl.permute(tl.reshape({x.name}, {[a, b, 2, c // 2]}), (0, 1, 3, 2))",
            f"tl.reshape({x.name}, {[a, b, c // 2, 2]})",
        ]
        if a > 1:
            ways.append(f"tl.permute(tl.reshape({x.name}, {[2, a // 2, b, c]}), (1, 2, 3, 0))")
        text = self.one_of(*ways)
        self.say(f"{', '.join(names)} = tl.split({text})")
        half = (a // 2, b, c) if text.endswith("0))") else (a, b, c // 2)
        self.values += [Value(name, x.kind, half) for name in names]
        if self.chance(2):
            self.let(f"tl.join({names[1]}, {names[0]})", x.kind, (*half, 2))

    def places(self) -> None:
        """Finds extremes together with where they are."""
        x = self.pick("int", self.vector, self.wide, self.cube)
        axis = self.draw(st.integers(0, len(x.shape) - 1))
        left = x.shape[:axis] + x.shape[axis + 1 :]
        names = self.names(2)
        few = f"({x.name} & 3)"
        self.say(f"{', '.join(names)} = tl.{self.one_of('max', 'min')}({few}, {axis}, return_indices=True)")
        self.values += [Value(name, "int", left) for name in names]

    # ---- calls ----

    def call(self) -> None:
        """Calls a function that stays one."""
        x = self.pick(self.kind(), (), self.vector, self.wide, self.cube)
        y = self.pick(x.kind, x.shape)
        if x.kind == "int" and x.shape and self.chance(2):
            axis = self.draw(st.integers(0, len(x.shape) - 1))
            self.let(f"heavier({x.name}, {axis})", "int", x.shape[:axis] + x.shape[axis + 1 :])
            return
        names = self.names(2)
        self.say(f"{', '.join(names)} = apart({x.name}, {y.name}, {self.one_of(1, 2)})")
        self.values += [Value(name, x.kind, x.shape) for name in names]

    # ---- memory ----

    def walk(self) -> None:
        """Adds up what lies along a way through memory; pointers, masks and two sums are carried."""
        kind, shape = self.kind(), self.one_of(self.vector, self.wide, self.cube)
        pointer, at = f"p_{self.one_of('int8', 'int32', 'uint16', 'int64') if kind == 'int' else 'float32'}", places(shape)
        q, i, step = *self.names(2), self.one_of(1, 7, 16, 64)
        first = self.let(f"tl.load({pointer} + ({at}))", kind, shape)
        second = self.let(first.name, kind, shape)
        self.say(f"{q} = {pointer} + ({at})")
        self.say(
            f"for {i} in {self.one_of('range(n & 3)', 'tl.range(0, 3, num_stages=3)', 'tl.range(2, loop_unroll_factor=2)')}:"
        )
        masked = f"{q}, mask=({at}) + {i} * {step} < {self.one_of('n * 9', MEMORY // 2, 100)}, other={self.one_of(0, 3)}"
        self.say(f"    {q} += {step}")
        self.say(f"    got = tl.load({self.one_of(f'{q} - {step}', masked)}).to({first.name}.dtype)")
        swap = f"{first.name}, {second.name} = {second.name}, {first.name}"
        if kind == "int":
            self.say(f"    {first.name}, {second.name} = {second.name}, ({first.name} + got).to({first.name}.dtype)")
        elif self.exact:
            self.say(f"    {first.name}, {second.name} = {second.name}, tl.maximum({first.name}, got)")
        else:
            self.say(f"    {first.name} = {first.name} * 0.5 + got")
            self.say(f"    {swap}")

    def room(self) -> str | None:
        """Returns the start of memory that nobody else of this kernel touches; None where none is left, or in a loop or branch."""
        if self.cells == CELLS or self.depth:
            return None
        self.cells += 1
        return f"cells + (pid * {CELLS} + {self.cells - 1}) * {SLOT}"

    def write(self) -> None:
        """Writes a tile, all or in part, and reads it back in another order."""
        x = self.pick("int", self.vector, self.wide, self.cube)
        start = self.room()
        if start is None:
            return
        i = places(x.shape)
        value = f"{x.name}.to(tl.int32)"
        if len(x.shape) == 2 and self.chance(2):
            rows, columns = x.shape
            at = self.one_of("[0, 0]", "[1, 0]", f"[{rows // 2}, 0]")
            if columns >= 4 and self.chance(2):
                self.say(
                    f"tl.make_tensor_descriptor({start}, [{rows}, {columns}], [{columns}, 1], {[rows, columns]}).store({at}, {value})"
                )
            else:
                text = f"tl.make_block_ptr({start}, ({rows}, {columns}), ({columns}, 1), {at}, {x.shape}, (1, 0))"
                self.say(f"tl.store({text}, {value}, boundary_check=(0, 1))")
        elif self.chance(3):
            self.say(f"if {self.one_of('pid == 0', 'n > 3')}:")
            self.say(f"    tl.store({start} + ({i}), {value})")
        else:
            mask = self.one_of("", f", mask=({i}) % 3 != pid", f", mask={x.name} > 5")
            self.say(f"tl.store({start} + (({i}) {self.one_of('', '^ 6', '* 1')}), {value}{mask})")
        self.say("tl.debug_barrier()")
        self.let(f"tl.load({start} + (({i}) {self.one_of('', '^ 3', '^ 1')}))", "int", x.shape)

    def scatter(self) -> None:
        """Elements meet in memory, by operations whose order does not matter."""
        x = self.pick("int", self.vector, self.wide)
        start = self.room()
        if start is not None:
            what = self.one_of("add", "max", "min", "and", "or", "xor")
            mask = self.one_of("", f", mask={x.name} > 3")
            self.say(
                f"tl.atomic_{what}({start} + ({x.name}.to(tl.int32) & {self.one_of(0, 3, 31)}), {x.name}.to(tl.int32) * 5{mask})"
            )

    def shared_cell(self) -> None:
        """One scalar is updated in a loop, and read."""
        start = self.room()
        if start is None:
            return
        (i,) = self.names(1)
        self.say(f"for {i} in range(n & 3):")
        self.say(f"    tl.atomic_add({start}, {i} + 1)")
        self.let(f"tl.atomic_{self.one_of('add', 'xchg', 'max')}({start}, pid + 4)", "int", ())

    # ---- products ----

    def product(self) -> None:
        """A product whose summed dimension is walked in steps, with what lies outside masked. Whole numbers: exact in every type."""
        kind = self.one_of("float16", "bfloat16", "float32", "int8")
        rows, columns, deep = self.one_of(16, 32), self.one_of(16, 32), 32 if kind == "int8" else self.one_of(16, 32)
        base = "p_int8" if kind == "int8" else f"m_{kind}"
        left, right = (
            (f"tl.arange(0, {rows})[:, None]", f"tl.arange(0, {deep})[None, :]"),
            (f"tl.arange(0, {deep})[:, None]", f"tl.arange(0, {columns})[None, :]"),
        )
        a, b, i, x, y = self.names(5)
        width = self.one_of(16, 32)
        self.say(
            f"{a} = {base} + {self.one_of(f'({left[0]} * {width} + {left[1]}) % 512', f'{left[0]} + {left[1]} * 16', f'{left[0]} * 8 + {left[1]}')}"
        )
        self.say(f"{b} = {base} + {self.one_of(f'({right[0]} * {width} + {right[1]}) % 512', f'{right[0]} + {right[1]} * 8')}")
        sums = "int32" if kind == "int8" else "float32"
        acc = self.let(
            f"tl.full([{rows}, {columns}], {self.one_of(0, 2)}, tl.{sums})",
            "int" if sums == "int32" else "float",
            (rows, columns),
        )
        head = self.one_of("range(2)", "range(n & 3)", "tl.range(0, 2, num_stages=3)", "tl.static_range(2)")
        self.say(f"for {i} in {head}:")
        self.say(f"    {x} = tl.load({a}{self.one_of('', f', mask={left[1]} < n + {i} * 9, other=0')})")
        self.say(
            f"    {y} = tl.load({b}{self.one_of('', f', mask={right[0]} < {deep - 5}, other=0', f', mask=({right[0]} < 9) & ({right[1]} < n), other=0')})"
        )
        more = {"float32": ", input_precision='ieee'", "int8": ", out_dtype=tl.int32"}.get(kind, "")
        self.say(
            "    " + self.one_of(f"{acc.name} = tl.dot({x}, {y}, {acc.name}{more})", f"{acc.name} += tl.dot({x}, {y}{more})")
        )
        self.say(f"    {a} += {self.one_of(deep, 16)}")
        self.say(f"    {b} += {self.one_of(deep, 3)}")
        if self.chance(3) and kind != "int8" and rows == columns == deep:  # still whole numbers, and exact: 8 bits times 8
            second = (
                f"tl.dot(({acc.name}.to(tl.int32) & 7).to(tl.{kind}), {acc.name}.to(tl.int32).to(tl.uint8).to(tl.{kind}){more})"
            )
            self.let(second, "float", (rows, columns))
