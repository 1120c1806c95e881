"""What tensor descriptors mean: which tensors and blocks they take, and their loads, stores and atomics, as in Triton.

A descriptor is its parts: base pointer, sizes, strides. Control flow and calls carry those, and the IR's descriptor is made of
them where it is used, so that equal descriptors are one after common subexpressions are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Builder, Value
from kernelpack.ir.dialects.descriptors import MAX_RANK, PADDINGS
from kernelpack.kernel.structured_types import tensor_descriptor_type
from kernelpack.kernel.types import (
    bfloat16,
    block_type,
    describe,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    pointer_type,
    uint32,
    uint64,
)
from kernelpack.kernel.values import tensor, tensor_descriptor
from kernelpack.semantics import operators

ROW_BYTES = 16
"""The least bytes of a block's last axis."""
_FLOATS = {
    "add": (float16, bfloat16, float32, float64),
    "min": (float16, bfloat16),
    "max": (float16, bfloat16),
}
"""The floats that blocks are combined of, besides integers: those of Triton, which are the hardware's (PTX ISA, cp.reduce.async.bulk)."""
LEAST_ROWS = 8
"""How many rows a gather or scatter takes at least, and for 32-bit elements how many columns."""


def make(b: Builder, base: Any, shape: Any, strides: Any, block_shape: Any, padding: Any) -> tensor_descriptor:
    """Returns the descriptor of a tensor. Raises CompilationError for what Triton refuses too."""
    element = _element_of(base)
    sizes, steps, block = (
        _entries(name, value) for name, value in (("shape", shape), ("strides", strides), ("block_shape", block_shape))
    )
    rank = len(sizes)
    if not 1 <= rank <= MAX_RANK:
        raise CompilationError(f"a tensor descriptor has 1 to {MAX_RANK} axes, not {rank}")
    for name, entries in (("strides", steps), ("block_shape", block)):
        if len(entries) != rank:
            raise CompilationError(f"{name} has {len(entries)} entries, shape has {rank}", cure="give one for each axis")
    kind = tensor_descriptor_type(element, block, _padding(element, padding))
    row = kind.block_type.shape[-1] * element.itemsize
    if row < ROW_BYTES:
        raise CompilationError(
            f"Descriptor block shape must have at least {ROW_BYTES} bytes in its last axis, "
            f"{kind.block_type.shape[-1]} elements of {element} are {row}",
            cure=f"make it {ROW_BYTES // element.itemsize} or more; what lies outside of the tensor is masked",
        )
    if not _is_one(steps[-1]):
        raise CompilationError(
            f"the last stride of a tensor descriptor must be the compile-time integer 1, is {describe(steps[-1])}",
            cure="write 1, and describe a transposed tensor with its axes swapped, and tl.trans of what is loaded",
        )
    return tensor_descriptor(
        kind,
        base,
        [_integer(b, "shape", size, int32) for size in sizes],
        [_integer(b, "strides", step, int64) for step in steps[:-1]],
    )


def handle(b: Builder, desc: tensor_descriptor) -> Value:
    """Returns the IR's descriptor."""
    operands = [desc.base, *desc.shape, *desc.outer_strides, operators.constant(b, 1, int64)]
    attributes = {"padding": desc.type.padding}
    return b.value("tt.make_tensor_descriptor", [value.handle for value in operands], attributes, desc.type.to_ir())


def place(b: Builder, name: str, desc: Any, offsets: Any) -> tuple[tensor_descriptor, list[Value]]:
    """Returns a descriptor and the coordinates of a block, for the function called `name`."""
    checked = _descriptor(name, desc)
    return checked, _coordinates(b, name, checked, offsets)


def load(b: Builder, desc: Any, offsets: Any) -> tensor:
    """Returns the block at some coordinates."""
    checked = _descriptor("load", desc)
    operands = [handle(b, checked), *_coordinates(b, "load", checked, offsets)]
    return tensor(b.value("tt.descriptor_load", operands, result_type=checked.block_type.to_ir()), checked.block_type)


def store(b: Builder, desc: Any, offsets: Any, value: Any) -> None:
    """Writes a block, converted to the descriptor's element type."""
    checked = _descriptor("store", desc)
    stored = _block(b, "store", checked, value, checked.block_shape)
    b.create("tt.descriptor_store", [handle(b, checked), stored.handle, *_coordinates(b, "store", checked, offsets)])


def reduce(b: Builder, what: str, desc: Any, offsets: Any, value: Any) -> None:
    """Combines a block with the one in memory, atomically element by element. `what` is add, min, max, and, or, xor."""
    name = f"atomic_{what}"
    checked = _descriptor(name, desc)
    element = checked.dtype
    elements = (int32, int64, uint32, uint64, *_FLOATS.get(what, ()))
    if element not in elements:
        raise CompilationError(
            f"{name} does not work on a descriptor of {element}", cure=f"use one of {', '.join(map(str, elements))}"
        )
    added = _block(b, name, checked, value, checked.block_shape)
    kind = f"u{what}" if what in ("min", "max") and element.is_int_unsigned() else what
    operands = [handle(b, checked), added.handle, *_coordinates(b, name, checked, offsets)]
    b.create("tt.descriptor_reduce", operands, {"kind": kind})


def gather(b: Builder, desc: Any, x_offsets: Any, y_offset: Any) -> tensor:
    """Returns rows picked by a tile of row numbers, from a column on."""
    checked = _descriptor("gather", desc)
    rows, column = _rows(b, "gather", checked, x_offsets, y_offset)
    kind = block_type(checked.dtype, [rows.shape[0], checked.block_shape[1]])
    operands = [handle(b, checked), rows.handle, column]
    return tensor(b.value("tt.descriptor_gather", operands, result_type=kind.to_ir()), kind)


def scatter(b: Builder, desc: Any, value: Any, x_offsets: Any, y_offset: Any) -> None:
    """Writes rows picked by a tile of row numbers, from a column on."""
    checked = _descriptor("scatter", desc)
    rows, column = _rows(b, "scatter", checked, x_offsets, y_offset)
    stored = _block(b, "scatter", checked, value, (rows.shape[0], checked.block_shape[1]))
    b.create("tt.descriptor_scatter", [handle(b, checked), rows.handle, column, stored.handle])


# ---- checks ----


def _element_of(base: Any) -> dtype:
    kind = base.type if isinstance(base, tensor) else None
    if not isinstance(kind, pointer_type):
        raise CompilationError(f"a tensor descriptor needs a scalar pointer, got {describe(base)}")
    if kind.element_ty.is_ptr() or kind.element_ty == int1:
        raise CompilationError(f"a tensor descriptor cannot describe elements of type {kind.element_ty}", cure="use numbers")
    return kind.element_ty


def _padding(element: dtype, padding: Any) -> str:
    if padding not in PADDINGS:
        raise CompilationError(
            f"padding_option cannot be {describe(padding)}", cure=f"use one of {', '.join(map(repr, PADDINGS))}"
        )
    if padding == "nan" and not element.is_floating():
        raise CompilationError(
            f"padding_option='nan' needs floats, the elements are {element}", cure="use padding_option='zero'"
        )
    return str(padding)


def _entries(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, (tuple, list)):
        raise CompilationError(f"{name} is a list with an entry for each axis, got {describe(value)}")
    return value


def _is_one(step: Any) -> bool:
    if isinstance(step, tensor):
        made_by = step.handle.defining_op
        return made_by is not None and made_by.name == "arith.constant" and not step.shape and made_by.attributes["value"] == 1
    return isinstance(step, int) and step == 1


def _integer(b: Builder, name: str, value: Any, kind: dtype) -> tensor:
    """Returns an integer scalar in the type that descriptors have it in."""
    made = operators.to_tensor(b, value)
    if made.shape or not made.dtype.is_int():
        raise CompilationError(f"{name} takes integer scalars, got {describe(value)}")
    return operators.cast(b, made, kind)


def _descriptor(name: str, desc: Any) -> tensor_descriptor:
    if isinstance(desc, tensor_descriptor):
        return desc
    raise CompilationError(
        f"{name} needs a tensor descriptor, got {describe(desc)}", cure="make one with tl.make_tensor_descriptor"
    )


def _coordinate(b: Builder, name: str, value: Any) -> Value:
    made = operators.to_tensor(b, value)
    if made.shape or not made.dtype.is_int() or made.dtype.int_bitwidth > 32:
        raise CompilationError(
            f"{name} takes coordinates that are int32 scalars, got {describe(value)}", cure="cast them: x.to(tl.int32)"
        )
    return operators.cast(b, made, int32).handle


def _coordinates(b: Builder, name: str, desc: tensor_descriptor, offsets: Any) -> list[Value]:
    entries = _entries(f"the offsets of {name}", offsets)
    if len(entries) != len(desc.shape):
        raise CompilationError(f"{name} got {len(entries)} coordinates, the descriptor has {len(desc.shape)} axes")
    return [_coordinate(b, name, entry) for entry in entries]


def _block(b: Builder, name: str, desc: tensor_descriptor, value: Any, shape: Sequence[int]) -> tensor:
    made = operators.as_type(b, value, desc.dtype, shape)
    if made.shape not in ((), tuple(shape)):
        raise CompilationError(f"{name} takes a tile of shape {list(shape)}, got {list(made.shape)}")
    return operators.broadcast_to(b, made, shape)


def _rows(b: Builder, name: str, desc: tensor_descriptor, x_offsets: Any, y_offset: Any) -> tuple[tensor, Value]:
    if len(desc.block_shape) != 2 or desc.block_shape[0] != 1:
        raise CompilationError(
            f"{name} takes a descriptor whose block is one row, this one's is {list(desc.block_shape)}",
            cure="make the descriptor with block_shape=[1, COLUMNS]",
        )
    rows = operators.to_tensor(b, x_offsets)
    if len(rows.shape) != 1 or not rows.dtype.is_int() or rows.dtype.int_bitwidth > 32:
        raise CompilationError(f"{name} takes a tile of int32 row numbers of one axis, got {describe(x_offsets)}")
    columns = LEAST_ROWS * 32 // desc.dtype.primitive_bitwidth
    if rows.shape[0] < LEAST_ROWS or desc.block_shape[1] < columns:
        raise CompilationError(
            f"{name} of {desc.dtype} takes at least {LEAST_ROWS} rows and {columns} columns, "
            f"got {rows.shape[0]} and {desc.block_shape[1]}"
        )
    return operators.cast(b, rows, int32), _coordinate(b, name, y_offset)
