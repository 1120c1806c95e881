"""Tile program -> LLVM IR: the kernel's function over a range of programs, and control flow between its statements.

    void entry(int64_t begin, int64_t end, const struct { void* const* params; uint32_t grid[3]; }* launch)

runs the programs with linear numbers [begin, end), x fastest. params[i] points to the value of parameter i.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from kernelpack.backends.cpu.emit.atomics import emit_atomic
from kernelpack.backends.cpu.emit.elements import constant, element_bytes, from_memory, memory_type, register_type
from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.emit.evaluate import Evaluator
from kernelpack.backends.cpu.emit.messages import as_printed, emit_assert, emit_check, emit_print
from kernelpack.backends.cpu.emit.nest import NestEmitter
from kernelpack.backends.cpu.emit.places import FIRST, Uniform
from kernelpack.backends.cpu.emit.product_along_k import LanesAlongK
from kernelpack.backends.cpu.emit.product_in_lanes import LanesAlongResult, ProductEmitter
from kernelpack.backends.cpu.emit.product_in_squares import InSquares
from kernelpack.backends.cpu.emit.product_in_tiles import InTiles, configure_tiles, release_tiles
from kernelpack.backends.cpu.emit.regions import Regions
from kernelpack.backends.cpu.emit.reloads import is_plain_load, may_write
from kernelpack.backends.cpu.emit.scratch import Scratch
from kernelpack.backends.cpu.emit.streaming import NONTEMPORAL, finish_streams
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.sinks import Materialize
from kernelpack.backends.cpu.plan.tile_program import Dot, For, If, Nest, Scalar, Statement, TileProgram, While
from kernelpack.errors import OutOfResources
from kernelpack.ir import views
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.dialect import operand, pointee_of
from kernelpack.ir.types import shape_of
from kernelpack.llvm.debug_info import DebugInfo
from kernelpack.llvm.text import Emitter, Val, literal
from kernelpack.options import Options

FIRST_FREE = 100
"""The first number of metadata that the emitters do not use."""
SCRATCH_LIMIT = 4 << 20
"""Bytes of stack that a kernel may use: half of the usual 8 MB of a thread."""


def tiles_to_llir(program: TileProgram, level: Level, options: Options, debug: DebugInfo | None = None) -> tuple[str, int]:
    """Returns the LLVM IR of a tile program, and the bytes of its tiles. With `debug`, whose numbers begin at FIRST_FREE, each line says
    where in the source it comes from. Raises OutOfResources where the tiles do not fit on a stack."""
    return _FunctionEmitter(program, level, options, debug).module()


def _check_scratch(program: TileProgram, needed: int) -> None:
    if needed <= SCRATCH_LIMIT:
        return
    biggest = sorted(program.buffers, key=lambda buffer: -buffer.bytes)[:3]
    users = ", ".join(f"{buffer} ({buffer.bytes >> 10} KB)" for buffer in biggest)
    raise OutOfResources(
        f"the tiles of {program.entry.attributes['sym_name']} need {needed >> 10} KB of stack, "
        f"{SCRATCH_LIMIT >> 10} KB are available; the biggest are {users}",
        location=program.entry.location.source,
        cure="lower the block sizes",
    )


class _FunctionEmitter:
    def __init__(self, program: TileProgram, level: Level, options: Options, debug: DebugInfo | None) -> None:
        self.program = program
        self.debug = debug
        self.level = level
        self.em = Emitter(level.intrinsics)
        self.lowering = Lowering(
            self.em, fuse=options.enable_fp_fusion, bf16_hardware=level.converts_bf16, int8_pack=level.int8_pack
        )
        self.scalars: dict[Value, Val] = {}
        self.storage = Scratch(self.em, program.buffers)
        self.unwritten: dict[int, Val] = {}
        self.regions = Regions(self.lowering, self.scalars, self._statements)

    def module(self) -> tuple[str, int]:
        em, entry, debug = self.em, self.program.entry, self.debug
        subprogram = debug.function(entry.attributes["sym_name"], entry.location) if debug is not None else None
        if debug is not None:
            em.located = functools.partial(debug.at, subprogram)
        with em.work_on(entry):
            self._parameters()
            configure_tiles(em, self.program, self.level)
            self._programs()
        release_tiles(em)
        tiles, needed = self.storage.allocate()
        _check_scratch(self.program, needed)
        name = entry.attributes["sym_name"]
        attached = f" !dbg !{subprogram}" if subprogram is not None else ""
        lines = [
            f"define void @{name}(i64 %begin, i64 %end, ptr noalias %launch) #0{attached} {{",
            "entry:",
            *tiles,
            *em.allocas,
            *em.lines,
            "}",
            *sorted(em.declarations),
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{self.level.vector_bits}" "no-trapping-math"="true" }}',
            "!0 = distinct !{!0, !1}",
            '!1 = !{!"llvm.loop.unroll.disable"}',
            NONTEMPORAL,
            *(debug.lines() if debug is not None else ()),
        ]
        return "\n".join(lines) + "\n", needed

    def _parameters(self) -> None:
        em = self.em
        table = em.load("ptr", Val("ptr", "%launch"), 8)
        for number, argument in enumerate(self.program.entry.body.arguments):
            address = em.load("ptr", em.offset(table, 8 * number), 8)
            kind = memory_type(argument.type)
            value = em.load(kind, address, element_bytes(argument.type))
            self.scalars[argument] = from_memory(em, value, argument.type)

    def _programs(self) -> None:
        """Loops over the programs."""
        em = self.em
        self.grid = [em.load("i32", em.offset(Val("ptr", "%launch"), 8 + 4 * axis), 4) for axis in range(3)]
        sizes = [em.cast("zext", extent, "i64") for extent in self.grid]
        slot = em.alloca("i64", "program", 8)
        em.store(Val("i64", "%begin"), slot, 8)
        head, body, exit_ = em.new_label("program"), em.new_label("body"), em.new_label("exit")
        em.jump(head)
        em.label(head)
        number = em.load("i64", slot, 8)
        em.branch(em.compare("icmp", "slt", number, Val("i64", "%end")), body, exit_)
        em.label(body)
        rest = em.binary("udiv", number, sizes[0])
        axes = [
            em.binary("urem", number, sizes[0]),
            em.binary("urem", rest, sizes[1]),
            em.binary("udiv", rest, sizes[1]),
        ]
        self.program_id = [em.cast("trunc", axis, "i32") for axis in axes]
        self._statements(self.program.statements)
        em.store(em.binary("add nsw", number, literal(1, "i64")), slot, 8)
        em.jump(head)
        em.label(exit_)
        finish_streams(em)
        em.line("ret void")

    # ---- statements ----

    def _statements(self, statements: list[Statement]) -> None:
        loaded: dict[Value, Val] = {}
        for statement in statements:
            self.storage.step()
            match statement:
                case Nest():
                    NestEmitter(
                        statement, self.program, self.lowering, self.level, self.regions, self.storage, self.program_id, loaded
                    ).run()
                case Dot():
                    emitter = self._product(statement)
                    with self.em.work_on(statement.op):
                        emitter(
                            statement, self.program, self.lowering, self.level, self.scalars, self.storage, self.unwritten
                        ).run()
                case Scalar():
                    self._scalar(statement.op)
                    if is_plain_load(statement.op):
                        loaded[statement.op.result] = self.scalars[operand(statement.op, "ptr")]
                case For() | While() | If():
                    with self.em.work_on(statement.op):
                        self._control(statement)
            if may_write(statement):
                loaded.clear()

    def _product(self, dot: Dot) -> type[ProductEmitter]:
        """Returns what writes a product."""
        if dot.along_k:
            return LanesAlongK
        if dot.in_tiles(self.level):
            return InTiles
        return InSquares if self.level.is_arm else LanesAlongResult

    def _control(self, statement: For | While | If) -> None:
        match statement:
            case For():
                self._for(statement)
            case While():
                self._while(statement)
            case If():
                self._if(statement)

    def _scalar(self, op: Operation) -> None:
        with self.em.work_on(op):
            self._scalar_value(op)

    def _scalar_value(self, op: Operation) -> None:
        em = self.em
        match op.name:
            case "arith.constant":
                self.scalars[op.result] = constant(op.attributes["value"], op.result.type)
            case "gpu.barrier" | "gpu.gdc_wait" | "gpu.gdc_launch_dependents":
                pass  # a program runs on one thread, a launch ends before the next begins
            case "tt.get_program_id" | "tt.get_num_programs":
                axis = "xyz".index(op.attributes["axis"])
                self.scalars[op.result] = (self.program_id if op.name == "tt.get_program_id" else self.grid)[axis]
            case "tt.addptr":
                pointee = pointee_of(operand(op, "ptr").type)
                base, offset = (self.scalars[operand] for operand in op.operands)
                self.scalars[op.result] = em.op("ptr", f"getelementptr {memory_type(pointee)}, {base}, {offset}")
            case "tt.load":
                loaded = self._evaluator().load(op, ())
                assert isinstance(loaded, Uniform)
                self.scalars[op.result] = loaded.val
            case "tt.store":
                self._evaluator().store(op, (), self.scalars[operand(op, "value")], lanes=False)
            case "tt.atomic_rmw" | "tt.atomic_cas":
                self._scalar_atomic(op)
            case "tt.assert":
                emit_assert(em, op, self.scalars[op.operand])
            case "cpu.check_access":
                emit_check(em, op, [self.scalars[operand] for operand in op.operands], 1)
            case "tt.print":
                values = [as_printed(self.lowering, self.scalars[operand], operand) for operand in op.operands]
                emit_print(em, op, values, [], [], self.program_id)
            case "tt.unsplat":
                zeros = tuple(FIRST for _ in shape_of(op.operand.type))
                value = self._evaluator().vector_of(op.operand, zeros)
                self.scalars[op.result] = value
            case _:
                self.scalars[op.result] = self.lowering.lower(op, [self.scalars[operand] for operand in op.operands])

    def _scalar_atomic(self, op: Operation) -> None:
        operands = [self.scalars[operand] for operand in op.operands]
        _, value, *_ = operands
        slot = self.em.alloca(value.type, "old", 8)
        emit_atomic(self.lowering, op, operands, lambda old: self.em.store(old, slot, 8))
        self.scalars[op.result] = self.em.load(value.type, slot, 8)

    def _evaluator(self) -> Evaluator:
        return Evaluator(self.program, self.lowering, self.scalars, self.storage, self.em.sink, 1)

    def _for(self, statement: For) -> None:
        em, op = self.em, statement.op
        loop = views.For.of(op)
        lower, upper, step = (self.scalars[bound] for bound in loop.bounds)
        counter = em.alloca(lower.type, "for", 8)
        em.store(lower, counter, 8)
        carried = self._slots(loop.initial, op.results)
        head, body, exit_ = em.new_label("for"), em.new_label("body"), em.new_label("exit")
        if statement.fills:
            without = em.new_label("without")
            em.branch(em.compare("icmp", "slt", lower, upper), head, without)
            em.label(without)
            self._statements([*statement.fills])
        em.jump(head)
        em.label(head)
        induction = em.load(lower.type, counter, 8)
        em.branch(em.compare("icmp", "slt", induction, upper), body, exit_)
        em.label(body)
        self.scalars[loop.induction] = induction
        for index, slot in carried.items():
            self.scalars[loop.carries(index).argument] = em.load(register_type(op.results[index].type), slot, 8)
        filled = {id(root.into) for nest in statement.fills for root in nest.roots if isinstance(root, Materialize)}
        if filled:
            first = em.compare("icmp", "eq", induction, lower)
            self.unwritten.update(dict.fromkeys(filled, first))
        with self.storage.loop():
            self._statements(statement.body)
        for buffer in filled:
            del self.unwritten[buffer]
        self._yield(op.body.terminator, carried)
        em.store(em.binary("add nsw", induction, step), counter, 8)
        em.line(f"br label %{head}, !llvm.loop !0")
        em.label(exit_)
        self._results(op, carried)

    def _while(self, statement: While) -> None:
        em, op = self.em, statement.op
        before, body = (region.block for region in op.regions)
        carried, passed = self._slots(op.operands, before.arguments), self._slots(None, op.results)
        head, inside, exit_ = em.new_label("while"), em.new_label("body"), em.new_label("exit")
        em.jump(head)
        em.label(head)
        self._arguments(before, carried)
        with self.storage.loop():
            self._statements(statement.before)
            goes_on, *values = before.terminator.operands
            self._store_all(values, passed)
            em.branch(self.scalars[goes_on], inside, exit_)
            em.label(inside)
            self._arguments(body, passed)
            self._statements(statement.body)
        self._yield(body.terminator, carried)
        em.line(f"br label %{head}, !llvm.loop !0")
        em.label(exit_)
        self._results(op, passed)

    def _arguments(self, block: Block, slots: dict[int, Val]) -> None:
        for index, slot in slots.items():
            argument = block.arguments[index]
            self.scalars[argument] = self.em.load(register_type(argument.type), slot, 8)

    def _if(self, statement: If) -> None:
        em, op = self.em, statement.op
        slots = self._slots(None, op.results)
        then, otherwise, after = em.new_label("then"), em.new_label("else"), em.new_label("after")
        em.branch(self.scalars[op.operand], then, otherwise)
        for label, region, statements in zip((then, otherwise), op.regions, (statement.then, statement.otherwise), strict=True):
            em.label(label)
            self._statements(statements)
            if region.blocks:
                self._yield(region.block.terminator, slots)
            em.jump(after)
        em.label(after)
        self._results(op, slots)

    def _slots(self, initial: Sequence[Value] | None, results: Sequence[Value]) -> dict[int, Val]:
        """Reserves memory for the scalars that control flow carries; LLVM turns it into registers."""
        slots: dict[int, Val] = {}
        for index, result in enumerate(results):
            if shape_of(result.type):
                continue
            slots[index] = self.em.alloca(register_type(result.type), "carry", 8)
            if initial is not None:
                self.em.store(self.scalars[initial[index]], slots[index], 8)
        return slots

    def _yield(self, terminator: Operation, slots: dict[int, Val]) -> None:
        self._store_all(terminator.operands, slots)

    def _store_all(self, values: Sequence[Value], slots: dict[int, Val]) -> None:
        for index, value in [(index, self.scalars[values[index]]) for index in slots]:
            self.em.store(value, slots[index], 8)

    def _results(self, op: Operation, slots: dict[int, Val]) -> None:
        for index, slot in slots.items():
            result = op.results[index]
            self.scalars[result] = self.em.load(register_type(result.type), slot, 8)
