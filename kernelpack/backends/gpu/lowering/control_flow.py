"""Structured control flow, regions applied to elements, program indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.errors import CompilationError
from kernelpack.ir.core import Block, Operation, Value
from kernelpack.ir.views import For, If, While
from kernelpack.llvm.text import Val

STRUCTURE = frozenset(
    {
        "builtin.module",
        "tt.func",
        "tt.return",
        "scf.yield",
        "scf.condition",
        "tt.reduce.return",
        "tt.scan.return",
        "tt.map_elementwise.return",
    }
)
"""Operations that have no lowering of their own: what holds them, or what they end, is lowered with them."""


class _Phis:
    """Values that meet at the head of a block, written before all of their sources are known."""

    def __init__(self, state: Lowering, values: Sequence[Value], like: Sequence[Value]) -> None:
        """Defines `values` here; they have as many registers as `like`, of the same types."""
        self.state = state
        self.phis: list[Val] = []
        self.slots: list[int] = []
        self.sources: list[tuple[str, list[Val]]] = []
        for value, source in zip(values, like, strict=True):
            registers = []
            for register in state[source]:
                name = Val(register.type, state.emit.fresh("phi"))
                self.slots.append(len(state.emit.lines))
                state.emit.lines.append("")
                registers.append(name)
            state[value] = registers
            self.phis += registers

    def add(self, block: str, values: Sequence[Value]) -> None:
        """States what comes from a block that jumps here."""
        self.sources.append((block, [register for value in values for register in self.state[value]]))

    def write(self) -> None:
        for number, (phi, slot) in enumerate(zip(self.phis, self.slots, strict=True)):
            pairs = ", ".join(f"[ {registers[number].name}, %{block} ]" for block, registers in self.sources)
            self.state.emit.lines[slot] = f"  {phi.name} = phi {phi.type} {pairs}"


def _for(state: Lowering, op: Operation) -> None:
    """Tests once before the first iteration and then after each, on what is left: the counter itself never overflows."""
    emit = state.emit
    lower, upper, step, *initial = op.operands
    body, end = (emit.new_label(name) for name in ("for", "endfor"))
    before = emit.block
    emit.branch(emit.compare("icmp", "slt", state.scalar(lower), state.scalar(upper)), body, end)
    emit.label(body)
    phis = _Phis(state, op.body.arguments, [lower, *initial])
    phis.add(before, [lower, *initial])
    state.block(op.body)
    induction = state.scalar(For.of(op).induction)
    left = emit.binary("sub", state.scalar(upper), induction)
    following = emit.binary("add", induction, state.scalar(step))
    yielded = op.body.terminator.operands
    phis.sources.append((emit.block, [following, *(register for value in yielded for register in state[value])]))
    phis.write()
    latch = emit.block
    again = emit.compare("icmp", "ugt", left, state.scalar(step))
    metadata = ", !llvm.loop !0" if state.keeps_loop(op) else ""
    emit.line(f"br {again}, label %{body}, label %{end}{metadata}")
    emit.label(end)
    results = _Phis(state, op.results, initial)
    results.add(before, initial)
    results.add(latch, yielded)
    results.write()


def _if(state: Lowering, op: Operation) -> None:
    emit = state.emit
    branches = If.of(op).branches
    labels = [emit.new_label(name) for name in ("then", "else")][: len(branches)]
    end = emit.new_label("endif")
    condition = state.scalar(op.operand)
    emit.branch(condition, labels[0], labels[1] if len(labels) > 1 else end)
    sources: list[tuple[str, Block]] = []
    for label, block in zip(labels, branches, strict=True):
        emit.label(label)
        state.block(block)
        sources.append((emit.block, block))
        emit.jump(end)
    emit.label(end)
    if op.results:
        phis = _Phis(state, op.results, branches[0].terminator.operands)
        for label, block in sources:
            phis.add(label, block.terminator.operands)
        phis.write()


def _while(state: Lowering, op: Operation) -> None:
    emit = state.emit
    loop = While.of(op)
    before, after = loop.before, loop.after
    head, body, end = (emit.new_label(name) for name in ("while", "do", "end"))
    entry = emit.block
    emit.jump(head)
    emit.label(head)
    phis = _Phis(state, before.arguments, op.operands)
    phis.add(entry, op.operands)
    state.block(before)
    condition, *passed = before.terminator.operands
    for argument, result, value in zip(after.arguments, op.results, passed, strict=True):
        state[argument] = state[result] = state[value]
    emit.branch(state.scalar(condition), body, end)
    emit.label(body)
    state.block(after)
    phis.add(emit.block, after.terminator.operands)
    phis.write()
    emit.jump(head)
    emit.label(end)


def inline(state: Lowering, block: Block, arguments: Sequence[Val]) -> list[Val]:
    """Lowers a combine region for scalars and returns what it gives."""
    for argument, value in zip(block.arguments, arguments, strict=True):
        state[argument] = [value]
    state.block(block)
    return [state.scalar(value) for value in block.terminator.operands]


def _map(state: Lowering, op: Operation) -> None:
    """Applies the region to `pack` neighbouring registers of every operand at a time."""
    pack = op.attributes["pack"]
    operands = [state[value] for value in op.operands]
    count = len(operands[0])
    if count % pack:
        raise CompilationError(
            f"tl.map_elementwise takes {pack} elements at a time, a thread has {count} of this tile",
            location=op.location.source,
            cure="use a larger tile, fewer warps, or a smaller pack",
        )
    results: list[list[Val]] = [[] for _ in op.results]
    for first in range(0, count, pack):
        given = inline(state, op.body, [value for registers in operands for value in registers[first : first + pack]])
        for number, registers in enumerate(results):
            registers += given[number * pack : (number + 1) * pack]
    for result, registers in zip(op.results, results, strict=True):
        state[result] = registers


def _program(state: Lowering, op: Operation) -> None:
    state[op.result] = [state.program(op.attributes["axis"])]


def _programs(state: Lowering, op: Operation) -> None:
    state[op.result] = [state.programs(op.attributes["axis"])]


CONTROL_FLOW: dict[str, Callable[[Lowering, Operation], None]] = {
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.map_elementwise": _map,
    "tt.get_program_id": _program,
    "tt.get_num_programs": _programs,
}
