"""Memory: the arguments' own buffers, reached by address, every access checked against them.

A pointer value is an address whose top 16 bits name the argument it came from, so that a wrong offset is caught even where it
happens to land in another argument. Addresses without a name (read from memory, or given as integers) may be in any of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelpack.errors import LaunchError, MemoryAccessError
from kernelpack.ir.core import Operation
from kernelpack.ir.formats import Array, carrier, decode, encode
from kernelpack.ir.interpret.elementwise import SAME_TYPE, bytes_of
from kernelpack.ir.types import PointerType, Type

_TAG_SHIFT = 48
_ADDRESS = (1 << _TAG_SHIFT) - 1

STORED_AS: dict[str, tuple[str, ...]] = {
    "i1": ("bool", "uint8", "int8"),
    "i8": ("int8", "uint8", "bool"),
    "i16": ("int16", "uint16"),
    "i32": ("int32", "uint32"),
    "i64": ("int64", "uint64"),
    "f16": ("float16",),
    "bf16": ("bfloat16", "uint16", "int16"),
    "f32": ("float32",),
    "f64": ("float64",),
    "f8E4M3FN": ("float8_e4m3fn", "uint8", "int8"),
    "f8E5M2": ("float8_e5m2", "uint8", "int8"),
    "f8E4M3FNUZ": ("float8_e4m3fnuz", "uint8", "int8"),
    "f8E5M2FNUZ": ("float8_e5m2fnuz", "uint8", "int8"),
    "f8E4M3B15": ("uint8", "int8"),
}
"""The NumPy and torch element types that a pointer to a scalar type takes, the proper one first."""


@dataclass
class ArgumentMemory:
    """The memory that one argument leads to: bytes [low, high), its first element at `start`.

    Of a torch tensor that is all of its storage, which kernels may know more of than the view that they are given; of a NumPy array
    it is the elements alone.
    """

    name: str
    owner: object
    start: int
    low: int
    high: int
    itemsize: int
    writable: bool
    elements: Array | None
    """Which of the itemsize-wide places hold elements; None where all do."""
    views: dict[int, Array] = field(default_factory=dict)

    @staticmethod
    def of(name: str, array: Any, kind: PointerType) -> ArgumentMemory:
        """Describes a NumPy array or a torch tensor on the CPU. Raises LaunchError where it does not fit the parameter."""
        if hasattr(array, "data_ptr"):
            if array.device.type != "cpu":
                raise LaunchError(f"argument {name} is on {array.device}, the interpreter takes CPU tensors")
            element, itemsize, start = str(array.dtype).removeprefix("torch."), array.element_size(), array.data_ptr()
        elif isinstance(array, np.ndarray):
            element, itemsize, start = array.dtype.name, array.itemsize, int(array.ctypes.data)
        else:
            raise LaunchError(f"argument {name} must be an array or a tensor for {kind}, is {type(array).__name__}")
        accepted = STORED_AS.get(str(kind.pointee), ("int64", "uint64") if isinstance(kind.pointee, PointerType) else ())
        if element not in accepted:
            raise LaunchError(
                f"argument {name} holds {element}, the kernel takes {kind}", cure=f"pass an array of {' or '.join(accepted)}"
            )
        shape = tuple(int(extent) for extent in array.shape)
        if 0 in shape:
            return ArgumentMemory(name, array, start, start, start, itemsize, True, None)
        if not isinstance(array, np.ndarray):
            storage = array.untyped_storage()
            return ArgumentMemory(
                name, array, start, storage.data_ptr(), storage.data_ptr() + storage.nbytes(), itemsize, True, None
            )
        writable, strides = bool(array.flags.writeable), array.strides
        if any(stride % itemsize for stride in strides):
            raise LaunchError(f"argument {name} has strides {strides}, which are not multiples of its {itemsize} byte elements")
        reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        low = start + sum(min(0, distance) for distance in reach)
        high = start + sum(max(0, distance) for distance in reach) + itemsize
        valid = np.zeros((high - low) // itemsize, np.bool_)
        first = valid[(start - low) // itemsize :]
        np.lib.stride_tricks.as_strided(first, shape, [stride // itemsize for stride in strides])[...] = True
        return ArgumentMemory(name, array, start, low, high, itemsize, writable, None if valid.all() else valid)

    def view(self, width: int) -> Array:
        """Returns the memory as unsigned integers of `width` bytes, from the first multiple of `width` at or below `low` on."""
        if width not in self.views:
            start = self.low - self.low % width
            raw = memoryview((ctypes.c_uint8 * ((self.high - start) // width * width)).from_address(start))
            self.views[width] = np.frombuffer(raw, np.dtype(f"uint{8 * width}"))
        return self.views[width]

    def contains(self, addresses: Array, width: int) -> Array:
        """Returns for each address whether `width` bytes from it on belong to elements of this buffer."""
        inside = (addresses >= self.low) & (addresses <= self.high - width)
        if self.elements is not None:
            for byte in (0, width - 1):
                place = np.where(inside, addresses + byte - self.low, 0) // self.itemsize
                inside &= self.elements[place]
        return inside


class Memory:
    """The buffers of one launch."""

    def __init__(self) -> None:
        self.buffers: list[ArgumentMemory] = []

    def add(self, name: str, array: Any, kind: PointerType) -> np.int64:
        """Makes an array reachable and returns the pointer to its first element."""
        buffer = ArgumentMemory.of(name, array, kind)
        self.buffers.append(buffer)
        start = array.data_ptr() if hasattr(array, "data_ptr") else int(array.ctypes.data)
        return np.int64(len(self.buffers) << _TAG_SHIFT | start)

    def load(self, op: Operation, kind: Type, pointers: Array, mask: Array | None, other: Array | None) -> Array:
        """Reads scalars of a type through pointers; lanes that the mask turns off give `other`, or zero."""
        flat, active = _lanes(pointers, mask)
        width = bytes_of(kind)
        out: Array = np.zeros(np.shape(pointers), carrier(kind))
        if other is not None:
            out[...] = other
        lanes = out.reshape(-1)
        for selected, view, places in self._places(op, flat, active, width, writes=False):
            lanes[selected] = decode(view[places], kind)
        return out

    def store(self, op: Operation, kind: Type, pointers: Array, values: Array, mask: Array | None) -> None:
        """Writes scalars of a type through pointers where the mask is on."""
        flat, active = _lanes(pointers, mask)
        bits = encode(np.broadcast_to(values, np.shape(pointers)).reshape(-1), kind)
        for selected, view, places in self._places(op, flat, active, bytes_of(kind), writes=True):
            view[places] = bits[selected]

    def atomic(self, op: Operation, what: str, kind: Type, pointers: Array, values: Array, mask: Array | None) -> Array:
        """Combines values into memory lane by lane and returns what each lane found there (zero where the mask is off)."""
        operands, combine = np.broadcast_to(values, np.shape(pointers)).reshape(-1), _ATOMIC[what]

        def update(before: Array, lanes: Array) -> Array:
            return encode(np.asarray(combine(kind, decode(before, kind), operands[lanes])), kind)

        return self._update(op, kind, pointers, mask, update)

    def compare_and_swap(self, op: Operation, kind: Type, pointers: Array, compared: Array, values: Array) -> Array:
        """Writes values lane by lane where memory holds the same bits as `compared`; returns what each lane found there."""
        wanted, new = (encode(np.broadcast_to(v, np.shape(pointers)).reshape(-1), kind) for v in (compared, values))
        return self._update(op, kind, pointers, None, lambda old, lanes: np.where(old == wanted[lanes], new[lanes], old))

    def _update(
        self, op: Operation, kind: Type, pointers: Array, mask: Array | None, update: Callable[[Array, Array], Array]
    ) -> Array:
        """Replaces bits in memory by `update(bits, lanes)`, lane by lane, and returns the values from before."""
        flat, active = _lanes(pointers, mask)
        out: Array = np.zeros(np.shape(pointers), carrier(kind))
        found = out.reshape(-1)
        for selected, view, places in self._places(op, flat, active, bytes_of(kind), writes=True):
            pending = np.arange(len(places))
            while len(pending):  # each round takes the first pending lane of every place
                _, first = np.unique(places[pending], return_index=True)
                lanes = pending[first]
                before = view[places[lanes]]
                found[selected[lanes]] = decode(before, kind)
                view[places[lanes]] = update(before, selected[lanes])
                pending = np.delete(pending, first)
        return out

    def _places(
        self, op: Operation, pointers: Array, active: Array, width: int, *, writes: bool
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Yields (lanes, memory, places in it) for each buffer that the active lanes point into, after checking them all."""
        pointers = pointers[active]
        if not len(pointers):
            return
        addresses = pointers & _ADDRESS
        owners = (pointers >> _TAG_SHIFT) - 1
        if (owners == -1).any():
            for index, buffer in enumerate(self.buffers):
                owners[(owners == -1) & buffer.contains(addresses, width)] = index
        groups = []
        for index in np.unique(owners):
            here = owners == index
            target = self.buffers[index] if 0 <= index < len(self.buffers) else None
            good = target.contains(addresses[here], width) if target else np.zeros(int(here.sum()), np.bool_)
            good &= addresses[here] % width == 0
            if target is None or not good.all():
                lane = active[np.flatnonzero(here)[np.flatnonzero(~good)[0]]]
                raise _bad_access(op, target, int(addresses[here][~good][0]), width, int(lane), int((~good).sum()))
            if writes and not target.writable:
                raise LaunchError(f"{op.name} writes argument {target.name}, which is read-only", location=op.location.source)
            groups.append((active[here], target.view(width), (addresses[here] - (target.low - target.low % width)) // width))
        yield from groups


def _lanes(pointers: Array, mask: Array | None) -> tuple[Array, Array]:
    """Returns the pointers as one row, and the numbers of the lanes that are on."""
    flat = np.asarray(pointers).reshape(-1)
    if mask is None:
        return flat, np.arange(len(flat))
    return flat, np.flatnonzero(np.broadcast_to(mask, np.shape(pointers)).reshape(-1))


def _bad_access(
    op: Operation, buffer: ArgumentMemory | None, address: int, width: int, lane: int, count: int
) -> MemoryAccessError:
    verb = "reads" if op.name in ("tt.load", "tt.descriptor_load", "tt.descriptor_gather") else "writes"
    pointers, *_ = op.operands
    lanes = f" ({count} lanes of {pointers.type} do; the first is lane {lane})"
    if buffer is None:
        return MemoryAccessError(
            f"{op.name} {verb} {width} bytes at address {address:#x}, which is in none of the arguments{lanes}",
            location=op.location.source,
            cure="mask the access, or pass the array that the pointer points into",
        )
    place = f"{width} bytes at byte {address - buffer.start} of argument {buffer.name}"
    if address % width:
        return MemoryAccessError(f"{op.name} {verb} {place}: not a multiple of {width}{lanes}", location=op.location.source)
    if buffer.low <= address <= buffer.high - width:
        extent = ", between its elements"
    elif buffer.low == buffer.start:
        extent = f", which has {buffer.high - buffer.start} bytes"
    else:
        extent = f", whose memory has bytes {buffer.low - buffer.start} to {buffer.high - buffer.start - 1}"
    return MemoryAccessError(
        f"{op.name} {verb} {place}{extent}{lanes}",
        location=op.location.source,
        cure="mask the access, for example with mask=offsets < size",
    )


_ATOMIC: dict[str, Callable[..., Array]] = {
    "and": SAME_TYPE["arith.andi"],
    "or": SAME_TYPE["arith.ori"],
    "xor": SAME_TYPE["arith.xori"],
    "add": SAME_TYPE["arith.addi"],
    "fadd": SAME_TYPE["arith.addf"],
    "fmax": SAME_TYPE["arith.maxnumf"],
    "fmin": SAME_TYPE["arith.minnumf"],
    "max": SAME_TYPE["arith.maxsi"],
    "min": SAME_TYPE["arith.minsi"],
    "umax": SAME_TYPE["arith.maxui"],
    "umin": SAME_TYPE["arith.minui"],
    "exch": lambda kind, before, value: value,
}
