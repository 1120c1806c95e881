"""What the lowering of one kernel carries: the emitter, the threads' indices, and each ttgir value as LLVM values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.lowering.linear_code import I32, apply_linear, i32, thread_bases
from kernelpack.backends.cuda.machine.features import Features
from kernelpack.ir.core import Block, Location, Operation, Value
from kernelpack.ir.types import IntegerType, PointerType, TensorType, Type, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Emitter, Val, llvm_type
from kernelpack.options import Options

if TYPE_CHECKING:
    from kernelpack.backends.cuda.lowering.tensor_map import Place


class RegisterSource(Protocol):
    """Gives the registers of a tile one by one."""

    def __getitem__(self, register: int, /) -> Val: ...


GLOBAL = "ptr addrspace(1)"
SHARED = "ptr addrspace(3)"


def register_type(kind: Type) -> str:
    """Returns the LLVM type of one element of a value in a register."""
    element = element_of(kind)
    if isinstance(element, PointerType):
        return GLOBAL if element.address_space == 1 else SHARED
    return llvm_type(element)


def memory_type(kind: Type) -> str:
    """Returns the LLVM type of one element in memory, where a boolean takes a byte."""
    return "i8" if element_of(kind) == IntegerType(1) else register_type(kind)


class Lowering:
    """The state of lowering one function.

    A tile is a list of LLVM values, one a register of its layout; a scalar a list of one. A buffer in shared memory is its
    address.
    """

    def __init__(
        self,
        features: Features,
        options: Options,
        facts: AxisInfoAnalysis,
        table: dict[str, Callable[[Lowering, Operation], None]],
        attachment: Callable[[Location], str] = lambda location: "",
    ) -> None:
        """`attachment` gives what an instruction of a source location carries."""
        self.emit = Emitter()
        self.attachment = attachment
        self.features = features
        self.options = options
        self.facts = facts
        self.table = table
        self.values: dict[Value, list[Val]] = {}
        self.addresses: dict[Value, Val] = {}
        self.readers: dict[Value, RegisterSource] = {}
        """Tiles that are read from shared memory only where they are used."""
        self.words: dict[tuple[Val, ...], Val] = {}
        """32-bit words by the elements that were taken out of them: packing those again needs no code."""
        self.num_warps = options.num_warps
        self.tid = self.emit.call(I32, "llvm.nvvm.read.ptx.sreg.tid.x", [])
        """The thread's index among the `num_warps` warps that run the code: of the block, or of a role's copy."""
        self.barrier_number = i32(0)
        """The barrier of the block at which those warps wait for each other."""
        self.copy: Val | None = None
        """Which copy of a role with several runs the code."""
        self.memory = Val(SHARED, "@shared_memory")

        self.messages: dict[str, str] = {}
        """Texts that the kernel shows, by the names of the constants that hold them: of the whole module."""
        self.assertions_count: Val | None = None
        """Where an assertion that fails stops the grid, if not everywhere."""
        self.place: Place | None = None
        """Where a kernel keeps the tensor maps that it makes."""
        self.warpgroups: dict[Val, Val] = {}
        """The number of the thread's warpgroup by the thread's index that it was computed from."""

    # ---- operations ----

    def block(self, block: Block) -> None:
        """Lowers the operations of a block up to its terminator."""
        for op in block.operations[:-1]:
            self.operation(op)

    def attach(self, location: Location) -> None:
        """Gives the instructions that follow a source location."""
        self.emit.attachment = self.attachment(location)

    def operation(self, op: Operation) -> None:
        outer = self.emit.attachment
        self.emit.attachment = self.attachment(op.location) or outer
        self.table[op.name](self, op)
        self.emit.attachment = outer

    def __getitem__(self, value: Value) -> list[Val]:
        return self.values[value]

    def __setitem__(self, value: Value, registers: Sequence[Val]) -> None:
        self.values[value] = list(registers)

    def scalar(self, value: Value) -> Val:
        (register,) = self.values[value]
        return register

    def source(self, value: Value) -> RegisterSource:
        """Returns a tile register by register, whether it has been read yet or not."""
        return self.readers.get(value) or self.values[value]

    # ---- threads ----

    def warpgroup(self) -> Val:
        """Returns the number of the thread's warpgroup, in a register that the assembler knows to be the same in a warp. Call it
        once where the thread's index is defined: later calls reuse that."""
        if self.tid not in self.warpgroups:
            number = self.emit.binary("lshr", self.tid, i32(7))
            self.warpgroups[self.tid] = self._shuffle_word("idx", number, i32(0), i32(31))
        return self.warpgroups[self.tid]

    def first_thread(self) -> Val:
        """Returns whether the thread is the one of its block, or of its role's copy, that does what is to be done once."""
        return self.emit.compare("icmp", "eq", self.tid, i32(0))

    def coordinate(self, layout: LinearLayout, axis: int) -> Val:
        """Returns where the thread's first register lies along a dimension."""
        return apply_linear(self.emit, self.tid, thread_bases(layout, axis))

    def owner(self, layout: LinearLayout) -> Val | None:
        """Returns whether the thread is the one, of all that hold copies of its elements, that writes them; None if all are."""
        copies = layout.free_bits("lane") | layout.free_bits("warp") << len(layout.bases("lane"))
        if not copies:
            return None
        return self.emit.compare("icmp", "eq", self.emit.binary("and", self.tid, i32(copies)), i32(0))

    def owner_of(self, kind: Type) -> Val | None:
        """As `owner`, for a value's type; one thread owns a scalar."""
        if isinstance(kind, TensorType):
            return self.owner(layout_of(kind))
        return self.emit.compare("icmp", "eq", self.tid, i32(0)) if self.num_warps * 32 > 1 else None

    def both(self, a: Val | None, b: Val | None) -> Val | None:
        """Returns the conjunction of two conditions; None stands for true."""
        if a is None or b is None:
            return a if b is None else b
        return self.emit.binary("and", a, b)

    def barrier(self) -> None:
        """Waits for all threads that run the code; what they wrote to shared memory before is visible behind it."""
        if self.num_warps == 1:
            self.emit.call("void", "llvm.nvvm.bar.warp.sync", [i32(-1)])
        elif self.barrier_number == i32(0):
            self.emit.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", [i32(0)])
        else:
            count = i32(32 * self.num_warps)
            self.emit.call("void", "llvm.nvvm.barrier.cta.sync.aligned.count", [self.barrier_number, count])

    def shuffle(self, mode: str, value: Val, lane: Val) -> Val:
        """Returns another lane's value. `mode` is bfly, up, down or idx; `lane` the mask, distance or index (PTX shfl.sync)."""
        emit = self.emit
        clamp = i32(0 if mode == "up" else 31)
        bits = self.as_integer(value)
        width = int(bits.type[1:])
        if width == 64:
            halves = [emit.cast("trunc", half, I32) for half in (bits, emit.binary("lshr", bits, Val("i64", "32")))]
            low, high = (self._shuffle_word(mode, half, lane, clamp) for half in halves)
            wide = emit.binary("shl", emit.cast("zext", high, "i64"), Val("i64", "32"))
            moved = emit.binary("or", wide, emit.cast("zext", low, "i64"))
        else:
            word = bits if width == 32 else emit.cast("zext", bits, I32)
            moved = emit.cast("trunc", self._shuffle_word(mode, word, lane, clamp), bits.type)
        return self.from_integer(moved, value.type)

    def _shuffle_word(self, mode: str, word: Val, lane: Val, clamp: Val) -> Val:
        return self.emit.call(I32, f"llvm.nvvm.shfl.sync.{mode}.i32", [i32(-1), word, lane, clamp])

    # ---- words ----

    def as_integer(self, value: Val) -> Val:
        """Returns the bits of a value as an integer of its width."""
        if value.type.startswith("i"):
            return value
        if value.type.startswith("ptr"):
            return self.emit.cast("ptrtoint", value, "i64")
        return self.emit.cast("bitcast", value, {"half": "i16", "bfloat": "i16", "float": "i32", "double": "i64"}[value.type])

    def from_integer(self, bits: Val, kind: str) -> Val:
        if kind.startswith("i"):
            return bits
        return self.emit.cast("inttoptr" if kind.startswith("ptr") else "bitcast", bits, kind)

    def pack(self, elements: Sequence[Val], word: str = I32) -> Val:
        """Returns neighbouring elements as one word; the first takes the low bits."""
        if len(elements) == 1:
            return self.emit.cast("bitcast", elements[0], word) if elements[0].type != word else elements[0]
        key = tuple(elements)
        known = self.words.get(key)
        if known is not None and known.type == word:
            return known
        kind = f"<{len(elements)} x {elements[0].type}>"
        vector = Val(kind, "poison")
        for index, element in enumerate(elements):
            vector = self.emit.op(kind, f"insertelement {vector}, {element}, i64 {index}")
        return self.emit.cast("bitcast", vector, word)

    def unpack(self, word: Val, kind: str, count: int) -> list[Val]:
        """Returns the `count` elements of type `kind` in a word."""
        if count == 1:
            return [word if word.type == kind else self.emit.cast("bitcast", word, kind)]
        vector = self.emit.cast("bitcast", word, f"<{count} x {kind}>")
        elements = [self.emit.extract(vector, index) for index in range(count)]
        self.words[tuple(elements)] = word
        return elements

    def message(self, text: str) -> Val:
        """Returns the address of a text, which ends in a zero byte."""
        name = self.messages.setdefault(text, f"@message{len(self.messages)}")
        return self.emit.cast("addrspacecast", Val(GLOBAL, name), "ptr")

    # ---- inline assembly ----

    def asm(
        self, kind: str, text: str, constraints: str, arguments: Sequence[Val], *, pure: bool = False, sync: bool = False
    ) -> Val:
        """Emits PTX as inline assembly. `pure` is for code without effects, `sync` for instructions that the threads of a warp
        execute together: LLVM then does not copy them into branches."""
        effect = "" if pure else "sideeffect "
        body = text.replace("\n", "\\0A\\09")
        call = f'call {kind} asm {effect}"{body}", "{constraints}"({", ".join(map(str, arguments))})'
        call += " convergent" if sync else ""
        if kind == "void":
            self.emit.line(call)
            return Val("void", "")
        return self.emit.op(kind, call)

    def fields(self, aggregate: Val, kinds: Sequence[str]) -> list[Val]:
        """Returns the members of a structure that an instruction gave."""
        return [self.emit.op(kind, f"extractvalue {aggregate}, {index}") for index, kind in enumerate(kinds)]
