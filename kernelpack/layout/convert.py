"""What moving a tile between two layouts takes: which instructions, which shared-memory layout, how many bank conflicts."""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kernelpack.layout.families import HARDWARE, dim, swizzled
from kernelpack.layout.linear import LinearLayout, log2

BANKS = 32
BANK_BYTES = 4
WAVEFRONT_BYTES = BANKS * BANK_BYTES
VECTOR_BYTES = 16
"""The widest access of one thread."""
REMOTE_REGISTERS = 2
"""How many registers a lane may have to choose between before shared memory is the cheaper way to convert."""


class Move(enum.Enum):
    """The cheapest way to convert a layout."""

    NONE = "every thread already holds its elements in order"
    REGISTERS = "every thread holds its elements, in other registers"
    SHUFFLE = "elements move between the lanes of a warp"
    SHARED = "elements move between warps, through shared memory"


@dataclass(frozen=True)
class Conversion:
    """`source` maps a place of the result (register, lane, warp, block) to the place of the operand that holds its element."""

    move: Move
    source: LinearLayout


@functools.lru_cache(maxsize=4096)
def plan_conversion(before: LinearLayout, after: LinearLayout) -> Conversion:
    """Returns how a tile gets from one distributed layout to another of the same shape."""
    before, after = before.with_ins(HARDWARE), after.with_ins(HARDWARE)
    source = after.invert_and_compose(before)
    # where the operand is held in copies, every thread takes its own
    for position, name in enumerate(HARDWARE[1:], 1):
        free = before.free_bits(name)
        entries = list(source.bases(name))
        for bit in range(min(len(entries), len(before.bases(name)))):
            if free >> bit & 1:
                entries[bit] = tuple(x | (1 << bit if at == position else 0) for at, x in enumerate(entries[bit]))
        source = source.with_bases(name, entries)
    return Conversion(_classify(source), source)


def _classify(source: LinearLayout) -> Move:
    def own(name: str, of: int) -> bool:
        """Whether index `of` of the source place depends on the result place's `name` in no way but being the same."""
        same = HARDWARE[of] == name
        return all(basis[of] == (1 << bit if same else 0) for bit, basis in enumerate(source.bases(name)))

    register, lane, warp = range(3)
    if not all(own(name, warp) for name in ("register", "lane", "warp")):
        return Move.SHARED
    if any(basis[register] for basis in source.bases("warp")):
        return Move.SHARED
    chosen = sum(1 for basis in source.bases("lane") if basis[register])
    if chosen or not all(own(name, lane) for name in ("register", "lane", "warp")):
        return Move.SHUFFLE if 1 << chosen <= REMOTE_REGISTERS else Move.SHARED
    registers = source.bases("register")
    if len(registers) == log2(source.shape[register]) and own("register", register):
        return Move.NONE
    return Move.REGISTERS


# ---- access to shared memory ----


@dataclass(frozen=True)
class SharedAccess:
    """How the threads of a CTA reach a tile in shared memory.

    `offsets` maps (register, lane, warp, block) to an offset in elements. The register bits in `vector` are one access of
    consecutive elements, lowest first.
    """

    offsets: LinearLayout
    vector: tuple[int, ...]

    @property
    def width(self) -> int:
        """The number of elements in one access."""
        return 1 << len(self.vector)


@functools.lru_cache(maxsize=4096)
def access_shared(registers: LinearLayout, memory: LinearLayout, bits: int) -> SharedAccess:
    """Returns how a tile distributed as `registers` is read from or written to `memory`; elements have `bits` bits."""
    offsets = registers.with_ins(HARDWARE).invert_and_compose(memory)
    entries = [basis[0] for basis in offsets.bases("register")]
    everywhere = [basis[0] for name in HARDWARE for basis in offsets.bases(name)]
    vector: list[int] = []
    while bits << len(vector) < VECTOR_BYTES * 8:
        step = 1 << len(vector)
        # nothing else may move within the vector: it starts at a multiple of its size
        if step not in entries or any(offset & step and offset != step for offset in everywhere):
            break
        vector.append(entries.index(step))
    return SharedAccess(offsets, tuple(vector))


@functools.lru_cache(maxsize=4096)
def wavefronts(offsets: tuple[int, ...], width_bytes: int, element_bytes: int) -> int:
    """Returns how many passes over the banks one warp-wide access takes.

    `offsets` are the lane bases in elements; an access of more than 4 bytes a lane is served in groups of lanes that together
    ask for 128 bytes.
    """
    addresses = [0]
    for basis in offsets:
        addresses += [address ^ basis * element_bytes for address in addresses]
    group = max(1, min(len(addresses), WAVEFRONT_BYTES // max(width_bytes, BANK_BYTES)))
    total = 0
    for first in range(0, len(addresses), group):
        rows: dict[int, set[int]] = {}
        for address in addresses[first : first + group]:
            for byte in range(address, address + max(width_bytes, 1), BANK_BYTES):
                word = byte // BANK_BYTES
                rows.setdefault(word % BANKS, set()).add(word)
        total += max(map(len, rows.values()))
    return total


def access_cost(access: SharedAccess, bits: int) -> int:
    """Returns how many passes over the banks one warp needs for its part of a tile."""
    element = max(1, bits // 8)
    count = access.offsets.in_size("register") // access.width
    lanes = tuple(basis[0] for basis in access.offsets.bases("lane"))
    return count * wavefronts(lanes, access.width * element, element)


@dataclass(frozen=True)
class MatrixLoad:
    """An ldmatrix: `count` 8x8 matrices of 16-bit elements, transposed or not; `matrices` are the register bits that count them."""

    count: int
    transposed: bool
    matrices: tuple[int, ...]
    pair: int
    """The register bit that the two elements of one 32-bit register differ in."""


@functools.lru_cache(maxsize=4096)
def match_ldmatrix(access: SharedAccess, bits: int) -> MatrixLoad | None:
    """Returns the ldmatrix that reads a tile, or None where its layout does not fit one (PTX ISA 9.7.15.5.15).

    Lanes 4 i ... 4 i + 3 receive row i of a matrix, eight consecutive elements of memory; with `.trans`, they receive column i.
    """
    registers = [basis[0] for basis in access.offsets.bases("register")]
    lanes = [basis[0] for basis in access.offsets.bases("lane")]
    if bits != 16 or 1 << len(lanes) != 32:  # it is for warps of 32 lanes
        return None
    elsewhere = [basis[0] for name in ("warp", "block") for basis in access.offsets.bases(name)]

    def is_row(offset: int) -> bool:
        return offset % 8 == 0

    if not all(map(is_row, elsewhere)):  # a warp's matrices would start within a row
        return None
    for transposed, low, high in ((False, lanes[:2], lanes[2:]), (True, lanes[2:], lanes[:2])):
        if transposed:
            pairs = [bit for bit, offset in enumerate(registers) if is_row(offset)][:1]
            fits = low == [1, 2, 4] and all(map(is_row, high))
        else:
            pairs = [bit for bit, offset in enumerate(registers) if offset == 1]
            fits = low == [2, 4] and all(map(is_row, high))
        if not fits or not pairs:
            continue
        others = [bit for bit, offset in enumerate(registers) if bit != pairs[0]]
        if not all(is_row(registers[bit]) for bit in others):
            continue
        matrices = tuple(others[:2])
        return MatrixLoad(1 << len(matrices), transposed, matrices, pairs[0])
    return None


def ldmatrix_cost(access: SharedAccess, load: MatrixLoad) -> int:
    """Returns how many passes over the banks one warp needs to read its part of a tile by ldmatrix."""
    lanes = [basis[0] for basis in access.offsets.bases("lane")]
    if load.transposed:
        rows = (access.offsets.bases("register")[load.pair][0], *lanes[:2])
    else:
        rows = tuple(lanes[2:])
    count = access.offsets.in_size("register") // 2
    return count * wavefronts((*rows, 0, 0), VECTOR_BYTES, 2) // 4  # one matrix: 8 rows of 16 bytes


@functools.lru_cache(maxsize=4096)
def read_cost(registers: LinearLayout, memory: LinearLayout, bits: int) -> int:
    """Returns how many passes over the banks reading a tile takes, by ldmatrix where that fits."""
    access = access_shared(registers, memory, bits)
    matrix = match_ldmatrix(access, bits)
    return access_cost(access, bits) if matrix is None else ldmatrix_cost(access, matrix)


@functools.lru_cache(maxsize=4096)
def best_shared(writers: tuple[LinearLayout, ...], readers: tuple[LinearLayout, ...], bits: int) -> LinearLayout:
    """Returns the memory layout in which writing and reading a tile take the fewest passes over the banks.

    Searches the swizzles; among equals the simplest wins.
    """
    shape = (writers + readers)[0].shape

    def cost(memory: LinearLayout) -> int:
        written = sum(access_cost(access_shared(layout, memory, bits), bits) for layout in writers)
        return written + sum(read_cost(layout, memory, bits) for layout in readers)

    return min(_candidates(shape, bits), key=cost)


def best_copied(layout: LinearLayout, bits: int, reader: LinearLayout | None = None) -> LinearLayout:
    """Returns the memory layout of a tile that asynchronous copies write and the threads that started them read, or those that hold it as
    `reader` says: the widest pieces first, then the fewest passes."""

    def cost(memory: LinearLayout) -> tuple[int, int]:
        writing = access_shared(layout, memory, bits)
        return -len(writing.vector), access_cost(writing, bits) + read_cost(reader or layout, memory, bits)

    return min(_candidates(layout.shape, bits), key=cost)


def _candidates(shape: tuple[int, ...], bits: int) -> Iterator[LinearLayout]:
    element = max(1, bits // 8)
    for order in itertools.permutations(reversed(range(len(shape)))):
        yield swizzled(shape, order)
        if len(shape) == 1:
            row = WAVEFRONT_BYTES // element
            if row < shape[0]:  # neighbours are swizzled as rows of the banks would be
                flat = ((dim(0), shape[0]),)
                yield from (memory.reshape_outs(flat) for memory in _candidates((shape[0] // row, row), bits))
            continue
        row = shape[order[0]] * element
        per_phase = max(1, WAVEFRONT_BYTES // row)
        for vec_bytes in (16, 32, 64, 8, 4):
            vec = vec_bytes // element
            if vec < 1 or vec >= shape[order[0]]:
                continue
            for max_phase in (2, 4, 8, 16, 32):
                if max_phase * vec_bytes <= max(WAVEFRONT_BYTES, 16) and max_phase * vec <= shape[order[0]]:
                    yield swizzled(shape, order, vec, per_phase, max_phase)
