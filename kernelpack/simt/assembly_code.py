"""Inline assembly as an LLVM function: registers are 64-bit slots on the stack, labels are blocks, instructions are calls.

Loads, stores and arithmetic on registers become LLVM instructions; all else is a row of kernelpack.simt.machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpack.errors import UnsupportedError
from kernelpack.simt import machine
from kernelpack.simt.ptx import Assembly, Atom, Instruction, Operand, parse_assembly

_SLOTS = {"float": "i32", "double": "i64", "half": "i16", "bfloat": "i16", "<2 x half>": "i32", "<2 x bfloat>": "i32"}
_NOWHERE = ("%globaltimer", "%smid")
"""Special registers that say nothing here: there is one multiprocessor, and no clock."""
_COMPARES = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_BINARY = {
    r"(and|or|xor)\.(?:b\d+|pred)": r"\1",
    r"(add|sub)\.[us]\d+": r"\1",
    r"mul\.lo\.[us]\d+": "mul",
    r"shl\.b\d+": "shl",
    r"shr\.[bu]\d+": "lshr",
    r"shr\.s\d+": "ashr",
}
"""Integer instructions of two operands, by what they are in LLVM."""


def members(kind: str) -> list[str]:
    """Returns the types in a result: none for void, those of a structure, or the type itself."""
    if kind == "void":
        return []
    return [part.strip() for part in kind.strip("{}").split(",")] if kind.startswith("{") else [kind]


class Slots:
    """Lines that turn values into 64-bit slots and back."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self._counter = 0

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        self._counter += 1
        name = f"%t{self._counter}"
        self.line(f"{name} = {text}")
        return name

    def reserve(self, count: int) -> str:
        self._counter += 1
        self.allocas.append(f"  %t{self._counter} = alloca [{count} x i64]")
        return f"%t{self._counter}"

    def to_slot(self, value: str, kind: str) -> str:
        if kind == "ptr":
            return self.op(f"ptrtoint ptr {value} to i64")
        bits = _SLOTS.get(kind, kind)
        if bits != kind:
            value = self.op(f"bitcast {kind} {value} to {bits}")
        return value if bits == "i64" else self.op(f"zext {bits} {value} to i64")

    def from_slot(self, value: str, kind: str) -> str:
        if kind == "ptr":
            return self.op(f"inttoptr i64 {value} to ptr")
        bits = _SLOTS.get(kind, kind)
        if bits != "i64":
            value = self.op(f"trunc i64 {value} to {bits}")
        return value if bits == kind else self.op(f"bitcast {bits} {value} to {kind}")

    def call(self, function: str, inputs: Sequence[str], outputs: int) -> list[str]:
        """Calls `simt_<function>` at `%site` and returns its results, all of them slots."""
        room, results = self.reserve(max(1, len(inputs))), self.reserve(max(4, outputs))
        for index, value in enumerate(inputs):
            self.line(f"store i64 {value}, ptr {self.op(f'getelementptr i64, ptr {room}, i64 {index}')}")
        self.line(f"call void @simt_{function}(i32 %site, ptr {room}, ptr {results})")
        return [
            self.op(f"load i64, ptr {self.op(f'getelementptr i64, ptr {results}, i64 {index}')}") for index in range(outputs)
        ]

    def give(self, values: Sequence[str], result: str) -> None:
        """Returns slots as a value of type `result`."""
        kinds = members(result)
        converted = [self.from_slot(value, kind) for value, kind in zip(values, kinds, strict=True)]
        if len(converted) <= 1:
            self.line(f"ret {result} {converted[0]}" if converted else "ret void")
            return
        aggregate = "poison"
        for index, (value, kind) in enumerate(zip(converted, kinds, strict=True)):
            aggregate = self.op(f"insertvalue {result} {aggregate}, {kind} {value}, {index}")
        self.line(f"ret {result} {aggregate}")


def function_of(name: str, text: str, constraints: str, result: str, kinds: Sequence[str]) -> tuple[str, set[str]]:
    """Returns an LLVM function that does what an asm expression does, and the names of the functions it calls."""
    return _Function(parse_assembly(text, constraints), result, kinds).write(name)


class _Function:
    def __init__(self, assembly: Assembly, result: str, kinds: Sequence[str]) -> None:
        self.assembly = assembly
        self.result = result
        self.kinds = kinds
        self.slots = Slots()
        self.called: set[str] = set()
        self._blocks = 0

    def write(self, name: str) -> tuple[str, set[str]]:
        slots, assembly = self.slots, self.assembly
        for register in [*(f"${index}" for index in range(assembly.outputs + len(self.kinds))), *assembly.declared]:
            slots.line(f"{self.place(register)} = alloca i64")
            slots.line(f"store i64 0, ptr {self.place(register)}")
        for index, (kind, tie) in enumerate(zip(self.kinds, assembly.ties, strict=True)):
            value = slots.to_slot(f"%a{index}", kind)
            slots.line(f"store i64 {value}, ptr {self.place(f'${assembly.outputs + index}')}")
            if tie is not None:
                slots.line(f"store i64 {value}, ptr {self.place(f'${tie}')}")
        for instruction in assembly.instructions:
            self.instruction(instruction)
        outputs = [self.read(f"${index}") for index in range(assembly.outputs)]
        if outputs and any(instruction.opcode.startswith("wgmma.wait_group") for instruction in assembly.instructions):
            outputs = self.call("wgmma_settle", [str(len(outputs)), *outputs], len(outputs))
        slots.give(outputs, self.result)
        parameters = ", ".join(["i32 %site", *(f"{kind} %a{index}" for index, kind in enumerate(self.kinds))])
        text = [f"define internal {self.result} @{name}({parameters}) noinline {{", *slots.allocas, *slots.lines, "}"]
        return "\n".join(text), self.called

    # ---- registers ----

    def place(self, register: str) -> str:
        return "%r_" + re.sub(r"\W", "_", register)

    def read(self, atom: Atom) -> str:
        if atom in _NOWHERE:
            return "0"
        return str(atom) if isinstance(atom, int) else self.slots.op(f"load i64, ptr {self.place(atom)}")

    def set(self, atom: Atom, value: str) -> None:
        if atom != "_":
            assert isinstance(atom, str)
            self.slots.line(f"store i64 {value}, ptr {self.place(atom)}")

    def call(self, function: str, inputs: Sequence[str], outputs: int) -> list[str]:
        self.called.add(function)
        return self.slots.call(function, inputs, outputs)

    # ---- instructions ----

    def instruction(self, at: Instruction) -> None:
        slots = self.slots
        if at.label is not None:
            slots.line(f"br label %{self.label(at.label)}")
            slots.lines.append(f"{self.label(at.label)}:")
            return
        if at.opcode in ("bra", "bra.uni"):
            target = at.target.atom
            assert isinstance(target, str)
            after = self.fresh()
            if at.guard is None:
                slots.line(f"br label %{self.label(target)}")
            else:
                slots.line(f"br i1 {self.guard(at)}, label %{self.label(target)}, label %{after}")
            slots.lines.append(f"{after}:")
            return
        if at.guard is None:
            self.body(at)
            return
        then, after = self.fresh(), self.fresh()
        condition = self.guard(at)
        if _is_access(at.opcode):  # a planted fault removes the mask
            removed = slots.op(f"load i8, ptr {slots.op('getelementptr i8, ptr @simt_off, i32 %site')}")
            condition = slots.op(f"or i1 {condition}, {slots.op(f'icmp ne i8 {removed}, 0')}")
        slots.line(f"br i1 {condition}, label %{then}, label %{after}")
        slots.lines.append(f"{then}:")
        self.body(at)
        slots.line(f"br label %{after}")
        slots.lines.append(f"{after}:")

    def label(self, name: str) -> str:
        return "label_" + re.sub(r"\W", "_", name)

    def fresh(self) -> str:
        self._blocks += 1
        return f"block{self._blocks}"

    def guard(self, at: Instruction) -> str:
        assert at.guard is not None
        return self.slots.op(f"icmp {'eq' if at.negated else 'ne'} i64 {self.read(at.guard)}, 0")

    def body(self, at: Instruction) -> None:
        if _is_access(at.opcode):
            self.access(at)
        elif not self.arithmetic(at):
            plan = machine.assembly(at)
            inputs = [self.read(atom) for atom in plan.inputs]
            for operand in at.operands:
                if operand.address and operand.offset:
                    index = list(plan.inputs).index(operand.atoms[0])
                    inputs[index] = self.slots.op(f"add i64 {inputs[index]}, {operand.offset}")
            for atom, value in zip(plan.outputs, self.call(plan.function, inputs, len(plan.outputs)), strict=True):
                self.set(atom, value)

    def access(self, at: Instruction) -> None:
        """`ld{.global}{.v4}.b32 {a, b, c, d}, [address];` and `st` likewise."""
        if at.opcode.startswith("atom"):
            self.atomic(at)
            return
        slots = self.slots
        is_load = at.opcode.startswith("ld")
        match = re.search(r"(?:\.v(\d))?\.[busf](\d+)$", at.opcode)
        if match is None:
            raise UnsupportedError(f"the emulator does not know the machine operation {at.opcode}")
        count, bits = int(match[1] or 1), int(match[2])
        space = 3 if ".shared" in at.opcode else 1 if ".global" in at.opcode else 0
        first, second, *_ = at.operands
        values, place = (first, second) if is_load else (second, first)
        address = slots.op(f"add i64 {self.read(place.atom)}, {place.offset}")
        size = count * bits // 8
        slots.line(
            f"call void @simt_access(i64 {address}, i32 {size}, i32 {size}, i32 {int(not is_load)}, i32 {space}, i32 %site)"
        )
        pointer = slots.op(f"inttoptr i64 {address} to ptr")
        for index, atom in enumerate(values.atoms):
            element = slots.op(f"getelementptr i{bits}, ptr {pointer}, i64 {index}")
            if is_load:
                loaded = slots.op(f"load i{bits}, ptr {element}, align 1")
                self.set(atom, loaded if bits == 64 else slots.op(f"zext i{bits} {loaded} to i64"))
            else:
                value = self.read(atom)
                narrow = value if bits == 64 else slots.op(f"trunc i64 {value} to i{bits}")
                slots.line(f"store i{bits} {narrow}, ptr {element}, align 1")

    def atomic(self, at: Instruction) -> None:
        """`atom.global.gpu.relaxed.add.u32 old, [address], value;`, `atom....cas.b32 old, [address], compared, value;`

        Of a vector, `atom....add.v2.f32 {old, next}, [address], {value, other};`, each element is updated by itself.
        """
        slots = self.slots
        match = re.fullmatch(r"atom\.global(?:\.\w+)*?\.(\w+?)(?:\.noftz)?(?:\.v\d)?\.([busf]+)(\d+)", at.opcode)
        if match is None:
            raise UnsupportedError(f"the emulator does not know the machine operation {at.opcode}")
        what, letters, bits = match[1], match[2], int(match[3])
        names = {("f", 16): "half", ("bf", 16): "bfloat", ("f", 32): "float", ("f", 64): "double"}
        kind = names.get((letters, bits), f"i{bits}")
        place, *values = at.sources
        address = slots.op(f"add i64 {self.read(place.atom)}, {place.offset}")
        size = bits // 8 * len(values[0].atoms)
        slots.line(f"call void @simt_access(i64 {address}, i32 {size}, i32 {size}, i32 2, i32 1, i32 %site)")
        base = slots.op(f"inttoptr i64 {address} to ptr")
        name = {"exch": "xchg"}.get(what, what)
        name = f"f{name}" if "f" in letters else f"u{name}" if letters == "u" and name in ("min", "max") else name
        for index, target in enumerate(at.target.atoms):
            pointer = slots.op(f"getelementptr {kind}, ptr {base}, i64 {index}")
            given = [f"{kind} {slots.from_slot(self.read(value.atoms[index]), kind)}" for value in values]
            if what == "cas":
                pair = slots.op(f"cmpxchg ptr {pointer}, {', '.join(given)} monotonic monotonic")
                old = slots.op(f"extractvalue {{{kind}, i1}} {pair}, 0")
            else:
                old = slots.op(f"atomicrmw {name} ptr {pointer}, {given[0]} monotonic")
            self.set(target, slots.to_slot(old, kind))

    def arithmetic(self, at: Instruction) -> bool:
        """Emits an instruction on registers alone; returns whether it is one."""
        slots = self.slots
        name, *qualifiers = at.opcode.split(".")
        bits = int(match[1]) if (match := re.fullmatch(r"[busf](\d+)", qualifiers[-1] if qualifiers else "")) else 1
        kind = f"i{bits}"

        def source(operand: Operand) -> str:
            value = self.read(operand.atom)
            return value if bits == 64 else slots.op(f"trunc i64 {value} to {kind}")

        if name == "setp" and qualifiers[0] in _COMPARES and qualifiers[-1][0] in "bus":
            signed = "" if qualifiers[0] in ("eq", "ne") else "s" if qualifiers[-1][0] == "s" else "u"
            left, right = (source(operand) for operand in at.sources)
            compared = slots.op(f"icmp {signed}{_COMPARES[qualifiers[0]]} {kind} {left}, {right}")
            result = slots.op(f"zext i1 {compared} to i64")
        elif name == "mov" and any(len(operand.atoms) > 1 for operand in at.operands):
            self.vector_move(at, bits)
            return True
        elif name in ("mov", "cvta"):
            (given,) = at.sources
            result = slots.op(f"add i64 {self.read(given.atom)}, 0")
        elif name == "selp":
            *values, predicate = at.sources
            chosen = slots.op(f"icmp ne i64 {self.read(predicate.atom)}, 0")
            yes, no = (self.read(operand.atom) for operand in values)
            result = slots.op(f"select i1 {chosen}, i64 {yes}, i64 {no}")
        elif match := re.fullmatch(r"cvt\.rzi\.([su])(8|16)\.f32", at.opcode):
            (given,) = at.sources
            narrow = f"i{match[2]}"
            number = f"float {slots.from_slot(self.read(given.atom), 'float')}"
            whole = slots.op(f"call {narrow} @llvm.fpto{match[1]}i.sat.{narrow}.f32({number})")
            result = slots.op(f"{'sext' if match[1] == 's' else 'zext'} {narrow} {whole} to i64")
        elif name == "not":
            (given,) = at.sources
            value = slots.op(f"xor {kind} {source(given)}, -1")
            result = value if bits == 64 else slots.op(f"zext {kind} {value} to i64")
        elif (binary := _binary(at.opcode)) is not None:
            left, right = (source(operand) for operand in at.sources)
            if binary in ("shl", "lshr", "ashr"):  # by the width or more: nothing is left but the sign
                far = slots.op(f"icmp uge {kind} {right}, {bits}")
                near = slots.op(f"select i1 {far}, {kind} {bits - 1 if binary == 'ashr' else 0}, {kind} {right}")
                value = slots.op(f"{binary} {kind} {left}, {near}")
                value = value if binary == "ashr" else slots.op(f"select i1 {far}, {kind} 0, {kind} {value}")
            else:
                value = slots.op(f"{binary} {kind} {left}, {right}")
            result = value if bits == 64 else slots.op(f"zext {kind} {value} to i64")
        else:
            return False
        self.set(at.target.atom, result)
        return True

    def vector_move(self, at: Instruction, bits: int) -> None:
        """`mov.b32 {low, high}, whole;` takes a register apart, `mov.b32 whole, {low, high};` puts one together."""
        slots = self.slots
        targets, sources = (operand.atoms for operand in at.operands)
        width = bits // max(len(targets), len(sources))
        mask = (1 << width) - 1
        if len(targets) > 1:
            whole = self.read(sources[0])
            for index, target in enumerate(targets):
                self.set(target, slots.op(f"and i64 {slots.op(f'lshr i64 {whole}, {index * width}')}, {mask}"))
            return
        whole = "0"
        for index, source in enumerate(sources):
            part = slots.op(f"and i64 {self.read(source)}, {mask}")
            whole = slots.op(f"or i64 {whole}, {slots.op(f'shl i64 {part}, {index * width}')}")
        self.set(targets[0], whole)


def _binary(opcode: str) -> str | None:
    """Returns what an instruction is in LLVM, where it is one of _BINARY."""
    for pattern, instruction in _BINARY.items():
        if match := re.fullmatch(pattern, opcode):
            return match.expand(instruction)
    return None


def _is_access(opcode: str) -> bool:
    return opcode.split(".")[0] in ("ld", "st", "atom")
