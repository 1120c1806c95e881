"""Emits matrix products for AMX: tiles of up to 16 x 16 results stay in tile registers while k runs over packed operands.

One operand has its rows in tiles as they lie, k inside, where they can be in global memory itself; the other has 32-bit units of neighbours along k, the lanes of the result beside
each other. Where the sum goes to a buffer that c lies in too, or c is zero, tiles are read from and written to buffers; otherwise they
pass through scratch memory, from which rows are read to add c. Tiles are configured where a kernel begins, or before each product where
products differ, and released where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelpack.backends.cpu.emit.places import Index, Place
from kernelpack.backends.cpu.emit.product_in_lanes import ProductEmitter
from kernelpack.backends.cpu.emit.transpose import transpose
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.facts.tiles import TileGrid
from kernelpack.backends.cpu.plan.buffers import Buffer, InPlace, OperandBuffer
from kernelpack.backends.cpu.plan.plan_product import tile_grid
from kernelpack.backends.cpu.plan.tile_program import Dot, TileProgram, walk
from kernelpack.ir.dialect import operand
from kernelpack.ir.types import I8, bit_width, element_of
from kernelpack.ir.views import is_zero
from kernelpack.llvm.text import Emitter, Val, literal

_UNROLL_K = 4
_GROUP = 8
"""How many panels a block of rows meets before the next block's turn: few enough that they stay in the second cache. There they lie one
after the other, as its prefetcher likes it, and the block of rows stays in the first cache: the other order takes 1.15 to 1.3 times as
long (measured, 512 rows)."""
_FIRST_OPERAND = 4
_UNIT_BYTES = 4
_CONFIGURE, _RELEASE = "llvm.x86.ldtilecfg", "llvm.x86.tilerelease"


def configure_tiles(em: Emitter, program: TileProgram, level: Level) -> None:
    """Configures the tiles for all products of a kernel, where one configuration does for them."""
    found = _configurations(program, level)
    if len(found) == 1:
        _configure(em, *found)


def release_tiles(em: Emitter) -> None:
    """Releases the tiles wherever the function that was written returns, if it configures them: a thread without tiles is switched faster."""
    if any(_CONFIGURE in line for line in em.declarations):
        em.declarations.add(f"declare void @{_RELEASE}()")
        released: list[str] = []
        for line in em.lines:
            released += [f"  call void @{_RELEASE}()", line] if line.startswith("  ret void") else [line]
        em.lines[:] = released


def _configurations(program: TileProgram, level: Level) -> set[bytes]:
    dots = (statement for statement in walk(program.statements) if isinstance(statement, Dot))
    return {_Registers(tile_grid(dot.op, dot.tile_lane_axis)).configuration() for dot in dots if dot.in_tiles(level)}


def _configure(em: Emitter, configuration: bytes) -> None:
    name = f"@.tiles{configuration.hex().rstrip('0')}"
    text = "".join(f"\\{byte:02X}" for byte in configuration)
    em.declarations.add(f'{name} = private unnamed_addr constant [{len(configuration)} x i8] c"{text}", align 64')
    em.call("void", _CONFIGURE, [Val("ptr", name)])


class _Registers:
    """Which of the eight tile registers hold what: the first four results, the others operands."""

    def __init__(self, grid: TileGrid) -> None:
        self.grid = grid
        few, many = (grid.tall, grid.wide) if grid.tall <= grid.wide else (grid.wide, grid.tall)
        one = range(_FIRST_OPERAND, _FIRST_OPERAND + few)
        rest = range(one.stop, 8)
        other = [rest[number % len(rest)] for number in range(many)]
        self.rows, self.lanes = (list(one), other) if grid.tall <= grid.wide else (other, list(one))

    def result(self, down: int, along: int) -> int:
        return down * self.grid.wide + along

    def configuration(self) -> bytes:
        """Returns what `ldtilecfg` reads: palette 1, then bytes a row and rows of each tile."""
        grid = self.grid
        shapes = {self.result(i, j): (grid.height, grid.width) for i in range(grid.tall) for j in range(grid.wide)}
        shapes |= dict.fromkeys(self.rows, (grid.height, grid.deep)) | dict.fromkeys(self.lanes, (grid.deep, grid.width))
        table = bytearray(64)
        table[0] = 1
        for tile, (rows, units) in shapes.items():
            table[16 + 2 * tile] = units * _UNIT_BYTES
            table[48 + tile] = rows
        return bytes(table)


class InTiles(ProductEmitter):
    """A product in tiles, from panels of the operand with the lanes and rows of the other one."""

    def divide(self, level: Level) -> tuple[OperandBuffer, int, int]:
        dot = self.dot
        rank = len(dot.out.shape)
        self.lane, self.other = dot.tile_lane_axis, 2 * rank - 3 - dot.tile_lane_axis
        lanes, rows = (dot.a, dot.b) if self.lane == rank - 2 else (dot.b, dot.a)
        assert isinstance(lanes, OperandBuffer), "lanes are read from panels"
        self.lanes, self.rows = lanes, rows
        self.grid = tile_grid(dot.op, self.lane)
        self.registers = _Registers(self.grid)
        return lanes, self.grid.width, self.grid.width

    def run(self) -> None:
        if len(_configurations(self.ev.program, self.level)) > 1:
            _configure(self.em, self.registers.configuration())
        super().run()

    def matrix(self, bases: dict[int, Place]) -> None:
        rows, lanes = self.dot.out.shape[self.other], self.dot.out.shape[self.lane]
        panel = self.grid.wide * self.grid.width
        group = min(lanes, _GROUP * panel)
        block = self.grid.tall * self.grid.height
        rows_end, lanes_end = self.until(self.other, rows, block), self.until(self.lane, lanes, panel)
        with (
            self.loop(lanes if lanes == group else lanes_end, group) as first,
            self.loop(rows_end, block) as row,
            self.loop(self.most(group, first, lanes_end), panel) as within,
        ):
            self._block({**bases, self.lane: self.sum_of(first, within), self.other: row})

    def _block(self, bases: dict[int, Place]) -> None:
        """Computes tall x wide tiles over all of k."""
        em, ev, grid = self.em, self.ev, self.grid
        before = self._direct()
        rows_at, stride = self._rows(bases)
        with em.into(ev.frames[-1]):
            lanes_at = self.operand_start(self.lanes, bases, bases[self.lane])
        if isinstance(before, Buffer):
            self._begin(before, bases)
        else:
            self._clear()
        step = min(_UNROLL_K * grid.deep, self.lanes.k_units)
        with self.loop(self.units, step) as place, em.into(ev.frames[-1]):
            for unit in range(0, step, grid.deep):
                self._step(rows_at, stride, lanes_at, place.plus(unit))
        if before is not None:
            for tile, index in self._tiles(bases):
                self._move("tilestored64", tile, self.dot.out, ev.pointer(self.dot.out, index))
            return
        self._through_scratch(bases)

    def _clear(self) -> None:
        with self.em.into(self.ev.frames[-1]):
            for tile in range(self.grid.tall * self.grid.wide):
                self.em.call("void", "llvm.x86.tilezero", [Val("i8", str(tile))])

    def _begin(self, before: Buffer, bases: dict[int, Place]) -> None:
        """Reads what results begin with, unless it stands for zeros as yet."""
        em, at = self.em, self.ev.frames[-1]
        places = [(tile, self.ev.pointer(before, index)) for tile, index in self._tiles(bases)]

        def read() -> None:
            for tile, address in places:
                self._move("tileloadd64", tile, before, address)

        is_first = self.unwritten.get(id(before))
        if is_first is None:
            read()
            return
        reading, clearing, after = (em.new_label(stem) for stem in ("read", "clear", "after"))
        with em.into(at):
            em.branch(is_first, clearing, reading)
        for label, fill in ((clearing, self._clear), (reading, read)):
            with em.into(at):
                em.label(label)
            fill()
            with em.into(at):
                em.jump(after)
        with em.into(at):
            em.label(after)

    def _tiles(self, bases: dict[int, Place]) -> Iterator[tuple[int, Index]]:
        """Yields the register of each tile of results, and where its first element is."""
        grid = self.grid
        for i in range(grid.tall):
            for j in range(grid.wide):
                point = {
                    **bases,
                    self.other: bases[self.other].plus(i * grid.height),
                    self.lane: bases[self.lane].plus(j * grid.width),
                }
                yield self.registers.result(i, j), tuple(point[axis] for axis in range(len(self.dot.out.shape)))

    def _direct(self) -> Buffer | Val | None:
        """Returns the buffer that holds c in the order of the result, or a zero, where tiles can take it as it is; None where rows have to be
        added: c is computed, lies in another order, or the result has another type."""
        out, c = self.dot.out, operand(self.dot.op, "c")
        if out.inner_axis != self.lane or out.element != self.compute or element_of(c.type) != self.compute:
            return None
        if is_zero(c):
            return literal(0, self.kind)
        held = self.ev.filled(c).get(out.inner_axis)
        return held if held is not None and held.shape == out.shape else None

    def _move(self, name: str, tile: int, buffer: Buffer, address: Val) -> None:
        """Reads or writes a tile of results."""
        size = bit_width(self.compute) // 8
        with self.em.into(self.ev.frames[-1]):
            self._access(name, tile, address, buffer.strides[self.other] * size)

    def _access(self, name: str, tile: int, address: Val, stride: int | Val) -> None:
        step = stride if isinstance(stride, Val) else literal(stride, "i64")
        self.em.call("void", f"llvm.x86.{name}", [Val("i8", str(tile)), address, step])

    def _rows(self, bases: dict[int, Place]) -> tuple[list[Val], int | Val]:
        """Returns where each tile of rows begins at the first k, and how far rows are apart."""
        em, grid, first = self.em, self.grid, bases[self.other]
        if isinstance(self.rows, OperandBuffer):
            apart = self.rows.row_units * _UNIT_BYTES
            with em.into(self.ev.frames[-1]):
                start = self.operand_start(self.rows, bases, first)
                return [em.offset(start, i * grid.height * apart) for i in range(grid.tall)], apart
        assert isinstance(self.rows, InPlace)
        starts = [self.in_place(self.rows, bases, first.plus(i * grid.height), Place()) for i in range(grid.tall)]
        second = self.in_place(self.rows, bases, first.plus(min(1, grid.height - 1)), Place())
        with em.into(self.ev.frames[-1]):
            return starts, em.binary("sub", em.cast("ptrtoint", second, "i64"), em.cast("ptrtoint", starts[0], "i64"))

    def _step(self, rows_at: list[Val], stride: int | Val, lanes_at: Val, unit: Place) -> None:
        """Adds to every tile what one tile of each operand gives. An operand is read just before it is first needed."""
        grid, registers = self.grid, self.registers
        product = "llvm.x86.tdpbssd" if self.lanes.element == I8 else "llvm.x86.tdpbf16ps"
        lane_bytes = self.lanes.row_units * _UNIT_BYTES
        lane = self.along_k(lanes_at, unit, lane_bytes)
        for i in range(grid.tall):
            self._access("tileloadd64", registers.rows[i], self.along_k(rows_at[i], unit, _UNIT_BYTES), stride)
            for j in range(grid.wide):
                if i == 0:
                    beside = self.em.offset(lane, j * grid.width * _UNIT_BYTES)
                    self._access("tileloadd64", registers.lanes[j], beside, lane_bytes)
                used = (registers.result(i, j), registers.rows[i], registers.lanes[j])
                self.em.call("void", product, [Val("i8", str(tile)) for tile in used])

    def _through_scratch(self, bases: dict[int, Place]) -> None:
        """Writes tiles to scratch memory, and from there rows, to which c is added, to where the result goes."""
        em, ev, grid = self.em, self.ev, self.grid
        size = bit_width(self.compute) // 8
        width = grid.wide * grid.width * size
        sums = em.alloca(f"[{grid.tall * grid.height * width} x i8]", "sums")
        with em.into(ev.frames[-1]):
            for i in range(grid.tall):
                for j in range(grid.wide):
                    at = em.offset(sums, i * grid.height * width + j * grid.width * size)
                    self._access("tilestored64", self.registers.result(i, j), at, width)
        if self.dot.lane_axis == self.lane:
            self._write_rows(bases, sums, self.lane, self.other, (grid.tall * grid.height, grid.wide * grid.width))
        else:
            turned = self._turned(sums, width)
            self._write_rows(bases, turned, self.other, self.lane, (grid.wide * grid.width, grid.tall * grid.height))

    def _turned(self, sums: Val, row_bytes: int) -> Val:
        """Returns scratch memory with what is in `sums`, rows and lanes exchanged. Tiles are square: both sides have 16 or more."""
        em, grid, size = self.em, self.grid, bit_width(self.compute) // 8
        turned = em.alloca(f"[{grid.tall * grid.height * row_bytes} x i8]", "turned")
        across = grid.tall * grid.height * size
        with em.into(self.ev.frames[-1]):
            for i in range(grid.tall):
                for j in range(grid.wide):
                    at = em.offset(sums, i * grid.height * row_bytes + j * grid.width * size)
                    rows = [em.load(self.kind, em.offset(at, row * row_bytes), 64) for row in range(grid.height)]
                    to = em.offset(turned, j * grid.width * across + i * grid.height * size)
                    for row, vector in enumerate(transpose(em, rows)):
                        em.store(vector, em.offset(to, row * across), 64)
        return turned

    def _write_rows(self, bases: dict[int, Place], sums: Val, lane: int, other: int, extents: tuple[int, int]) -> None:
        """Writes so many rows of so many results along an axis, which lie one after the other."""
        rows, lanes = extents
        step = min(self.width, lanes)
        row_bytes = lanes * bit_width(self.compute) // 8
        with self.loop(rows, 1) as row:
            for first in range(0, lanes, step):
                place = bases[lane].plus(first)
                beside = Place(place.base, place.offset, place.depth, step > 1)
                point = {**bases, other: self.sum_of(bases[other], row), lane: beside}
                with self.em.into(self.ev.frames[-1]):
                    at = self.em.offset(self.along_k(sums, row, row_bytes), first * row_bytes // lanes)
                self.write(at, self.kind, tuple(point[axis] for axis in range(len(self.dot.out.shape))))
