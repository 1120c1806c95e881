"""What the lowering of one kernel carries: the emitter, the threads' indices, and each ttgir value as LLVM values; and what a vendor's
lowering adds: where a thread is, and how threads wait for each other and exchange values."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.gpu.lowering.linear_code import I32, apply_linear, i32
from kernelpack.ir.core import Block, Location, Operation, Value
from kernelpack.ir.types import IntegerType, PointerType, TensorType, Type, element_of
from kernelpack.layout.encoding import layout_of
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Emitter, Val, llvm_type
from kernelpack.options import Options

if TYPE_CHECKING:
    from kernelpack.backends.gpu.lowering.shared_memory import TileAccess


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


def repeated_registers(state: Lowering, value: Value) -> int:
    """Returns the bits of a register's number that make no difference to what it holds."""
    if not isinstance(value.type, TensorType):
        return 0
    bases = layout_of(value).bases("register")
    if value.defining_op is not None and value.defining_op.name in ("arith.constant", "tt.splat"):
        return (1 << len(bases)) - 1
    constancy = state.facts[value].constancy
    within = (all(step < run for step, run in zip(basis, constancy, strict=True)) for basis in bases)
    return sum(1 << bit for bit, inside in enumerate(within) if inside)


class Lowering(abc.ABC):
    """The state of lowering one function.

    A tile is a list of LLVM values, one a register of its layout; a scalar a list of one. A buffer in shared memory is its
    address.
    """

    scopes: ClassVar[Mapping[str, str]]
    """How LLVM writes the scopes of atomics: cta, gpu, sys."""

    def __init__(
        self,
        options: Options,
        lanes: int,
        facts: AxisInfoAnalysis,
        table: Mapping[str, Callable[[Any, Operation], None]],
        tiles: TileAccess,
        attachment: Callable[[Location], str] = lambda location: "",
    ) -> None:
        """`table` lowers operations by their names, `tiles` reads and writes tiles in shared memory, `attachment` gives what an
        instruction of a source location carries."""
        self.emit = Emitter()
        self.attachment = attachment
        self.options = options
        self.lanes = lanes
        self.facts = facts
        self.table = table
        self.tiles = tiles
        self.values: dict[Value, list[Val]] = {}
        self.addresses: dict[Value, Val] = {}
        self.readers: dict[Value, RegisterSource] = {}
        """Tiles that are read from shared memory only where they are used."""
        self.words: dict[tuple[Val, ...], Val] = {}
        """32-bit words by the elements that were taken out of them: packing those again needs no code."""
        self.num_warps = options.num_warps
        self.tid = self.thread()
        """The thread's index among the `num_warps` warps that run the code: of the block, or of a role's copy."""
        self.copy: Val | None = None
        """Which copy of a role with several runs the code."""
        self.memory = Val(SHARED, "@shared_memory")
        self.assertions_count: Val | None = None
        """Where an assertion that fails stops the grid, if not everywhere."""

    # ---- what a vendor's instructions do ----

    @abc.abstractmethod
    def thread(self) -> Val:
        """Returns the thread's index in its block."""

    @abc.abstractmethod
    def program(self, axis: str) -> Val:
        """Returns the program's index along x, y or z."""

    @abc.abstractmethod
    def programs(self, axis: str) -> Val:
        """Returns how many programs there are along x, y or z."""

    @abc.abstractmethod
    def barrier(self) -> None:
        """Waits for all threads that run the code; what they wrote to shared memory before is visible after it."""

    @abc.abstractmethod
    def shuffle_word(self, mode: str, word: Val, lane: Val) -> Val:
        """Returns another lane's 32-bit word; see shuffle."""

    def keeps_loop(self, loop: Operation) -> bool:
        """Whether LLVM must leave a loop as it is written."""
        return False

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

    def first_thread(self) -> Val:
        """Returns whether the thread is the one of its block, or of its role's copy, that does what is to be done once."""
        return self.emit.compare("icmp", "eq", self.tid, i32(0))

    def coordinate(self, layout: LinearLayout, axis: int) -> Val:
        """Returns where the thread's first register lies along a dimension."""
        return apply_linear(self.emit, self.tid, self.bases(layout, axis))

    def bases(self, layout: LinearLayout, output: int = 0, scale: int = 1) -> list[int]:
        """Returns what each bit of the thread's index adds to one output of a layout: lanes, then warps."""
        assert layout.in_size("lane") == self.lanes, "the layout is one of other warps"
        return [basis[output] * scale for name in ("lane", "warp") for basis in layout.bases(name)]

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
        return self.emit.compare("icmp", "eq", self.tid, i32(0)) if self.num_warps * self.lanes > 1 else None

    def both(self, a: Val | None, b: Val | None) -> Val | None:
        """Returns the conjunction of two conditions; None stands for true."""
        if a is None or b is None:
            return a if b is None else b
        return self.emit.binary("and", a, b)

    def shuffle(self, mode: str, value: Val, lane: Val) -> Val:
        """Returns another lane's value. `mode` is bfly, up, down or idx; `lane` the mask, distance or index. What comes
        from beyond the warp must not be used: vendors differ."""
        emit = self.emit
        bits = self.as_integer(value)
        width = int(bits.type[1:])
        if width == 64:
            halves = [emit.cast("trunc", half, I32) for half in (bits, emit.binary("lshr", bits, Val("i64", "32")))]
            low, high = (self.shuffle_word(mode, half, lane) for half in halves)
            wide = emit.binary("shl", emit.cast("zext", high, "i64"), Val("i64", "32"))
            moved = emit.binary("or", wide, emit.cast("zext", low, "i64"))
        else:
            word = bits if width == 32 else emit.cast("zext", bits, I32)
            moved = emit.cast("trunc", self.shuffle_word(mode, word, lane), bits.type)
        return self.from_integer(moved, value.type)

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

    # ---- inline assembly ----

    def asm(
        self, kind: str, text: str, constraints: str, arguments: Sequence[Val], *, pure: bool = False, convergent: bool = False
    ) -> Val:
        """Emits inline assembly. `pure` is for code without effects, `convergent` for instructions that the threads of a warp
        execute together: LLVM then does not copy them into branches."""
        effect = "" if pure else "sideeffect "
        body = text.replace("\n", "\\0A\\09")
        call = f'call {kind} asm {effect}"{body}", "{constraints}"({", ".join(map(str, arguments))})'
        call += " convergent" if convergent else ""
        if kind == "void":
            self.emit.line(call)
            return Val("void", "")
        return self.emit.op(kind, call)

    def fields(self, aggregate: Val, kinds: Sequence[str]) -> list[Val]:
        """Returns the members of a structure that an instruction gave."""
        return [self.emit.op(kind, f"extractvalue {aggregate}, {index}") for index, kind in enumerate(kinds)]
