"""Tensor maps: what the hardware's bulk copies (TMA) know of a tensor in global memory, and who makes which.

A descriptor whose pointer, sizes and strides are functions of the kernel's arguments alone becomes a parameter of 128 bytes, which
the launcher encodes at each launch. What it needs for that is recorded as text (tensor_maps.py), in the words of the kernel's
parameters:

    bf16; base: a; sizes: M, K; strides: K; box: 128, 64; swizzle: 128; padding: zero

Sizes and strides are expressions in postfix form (`K 2 *`), strides count elements and leave out the last, which is 1.

Of other descriptors the kernel makes the map itself (lowering/tensor_map.py), where a loop copies through it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.machine.block_copies import transfer_of
from kernelpack.descriptors import READABLE
from kernelpack.ir.core import BlockArgument, Operation, Value
from kernelpack.ir.dialect import Effect, attribute, effects_of, operand, operands_called
from kernelpack.ir.dialects.descriptors import block_of
from kernelpack.ir.types import IntegerType, PointerType, bit_width

ALIGNMENT = 16
"""What the tensor's address and the strides are multiples of, in bytes (CUDA driver API, cuTensorMapEncodeTiled)."""

_OPERATORS = {
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.divsi": "/",
    "arith.remsi": "%",
    "arith.maxsi": ">?",
    "arith.minsi": "<?",
}
"""What expressions may compute: on 64-bit integers, division toward zero. Arithmetic of sizes does not wrap."""
_LOOPS = ("scf.for", "scf.while")
_SAME_NUMBER = ("arith.extsi", "arith.trunci")


@dataclass(frozen=True)
class TensorMap:
    """A tensor map as text fields: expressions of the kernel's parameters, outermost axis first. `box` and `swizzle` are in
    elements and bytes; `padding` is what lies outside: zero or nan."""

    element: str
    base: str
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    swizzle: int
    padding: str

    @property
    def tensor(self) -> str:
        """The parameter that the base is made of."""
        return self.base.split()[0]

    def __str__(self) -> str:
        sizes, strides, box = (", ".join(map(str, entries)) for entries in (self.sizes, self.strides, self.box))
        return (
            f"{self.element}; base: {self.base}; sizes: {sizes}; strides: {strides}; box: {box}; "
            f"swizzle: {self.swizzle}; padding: {self.padding}"
        )


def why_unmapped(make: Operation, facts: AxisInfoAnalysis) -> str | None:
    """Returns why no tensor map describes what a tt.make_tensor_descriptor does, or None."""
    block = block_of(make.result.type)
    transfer = transfer_of(block)
    if transfer is None:
        return f"TMA cannot copy a block of {block}"
    padding = attribute(make, "padding")
    if padding == "nan" and bit_width(block.element) == 8:
        return f"TMA has no NaN of {block.element}"
    base, strides = operand(make, "base"), operands_called(make, "strides")
    if facts[strides[-1]].constant != 1:
        return "the last stride is not 1"
    width = bit_width(block.element) // 8
    if facts[base].every(width) % ALIGNMENT:
        return f"the tensor is not known to begin at a multiple of {ALIGNMENT} bytes"
    if any(facts[stride].every() * width % ALIGNMENT for stride in strides[:-1]):
        return f"its strides are not known to be multiples of {ALIGNMENT} bytes"
    return None


def tensor_map_of(make: Operation, facts: AxisInfoAnalysis) -> TensorMap | str:
    """Returns the tensor map that the launcher makes of a tt.make_tensor_descriptor, or why it cannot."""
    reason = why_unmapped(make, facts)
    if reason is not None:
        return reason
    block = block_of(make.result.type)
    base, sizes, strides = operand(make, "base"), operands_called(make, "shape"), operands_called(make, "strides")
    texts = [_expression(value) for value in (base, *sizes, *strides[:-1])]
    if any(text is None for text in texts):
        return "its pointer, sizes and strides are not functions of the kernel's arguments"
    known = [text for text in texts if text is not None]
    rank = len(sizes)
    transfer = transfer_of(block)
    assert transfer is not None
    return TensorMap(
        str(block.element),
        known[0],
        tuple(known[1 : 1 + rank]),
        tuple(known[1 + rank :]),
        transfer.box,
        transfer.swizzle,
        attribute(make, "padding"),
    )


def kernel_makes(make: Operation, facts: AxisInfoAnalysis) -> bool:
    """Whether the kernel makes the tensor map of a tt.make_tensor_descriptor: where it can, the launcher cannot, and copies run ahead
    in a loop, or a loop stores what such a loop computes. For copies one by one maps are no faster than pointers (docs/h100-tuning.md)."""
    around, users = set(make.ancestors()), make.result.users()
    inside = [[op for op in access.ancestors() if op not in around] for access in users]
    return (
        any(_runs_ahead(next((op for op in ancestors if op.name in _LOOPS), None)) for ancestors in inside)
        and all(op.name != "ttg.role" for ancestors in inside for op in ancestors)
        and all(access.name.startswith("tt.") for access in users)  # by hand, the author would say who waits for the old map
        and why_unmapped(make, facts) is None
        and not isinstance(tensor_map_of(make, facts), TensorMap)
    )


def _runs_ahead(loop: Operation | None) -> bool:
    """Whether a loop, or one in it, writes nothing to memory."""
    return loop is not None and any(
        op.name in _LOOPS and not any(Effect.WRITE_GLOBAL in effects_of(inner) for inner in op.walk() if inner is not op)
        for op in loop.walk()
    )


def why_not_copied(access: Operation, make: Operation, facts: AxisInfoAnalysis) -> str | None:
    """Returns why TMA does not do what a load or a store of a block means, or None.

    Found on an H100: a column that is no multiple of 16 bytes is an illegal instruction, and a store writes whole 16 bytes at
    the end of a row. (So is a store at a negative coordinate: it traps, as with Triton, and is not known before.)
    """
    if not begins_known(access, make, facts):
        return f"its last coordinate is not known to be a multiple of {ALIGNMENT} bytes"
    if not ends_known(access, make, facts):
        return f"the rows that it stores to are not known to end at a multiple of {ALIGNMENT} bytes"
    return None


def begins_known(access: Operation, make: Operation, facts: AxisInfoAnalysis) -> bool:
    """Whether the first column of a block is known to be one that TMA takes."""
    column = operands_called(access, "coords" if access.name.startswith("ttng.") else "indices")[-1]
    return facts[column].every() * _width(make) % ALIGNMENT == 0


def ends_known(access: Operation, make: Operation, facts: AxisInfoAnalysis) -> bool:
    """Whether rows are known to end where TMA ends what it writes, if an access writes."""
    row = operands_called(make, "shape")[-1]
    return not access.name.endswith(("store", "to_global")) or facts[row].every() * _width(make) % ALIGNMENT == 0


def _width(make: Operation) -> int:
    return bit_width(block_of(make.result.type).element) // 8


def _expression(value: Value) -> str | None:
    """Returns an integer or a pointer as an expression of kernel parameters in postfix form; None where it is none."""
    if isinstance(value, BlockArgument):
        function = value.owner.parent.parent if value.owner.parent is not None else None
        uniform = function is not None and function.name == "tt.func" and function.attributes.get("sym_visibility") == "public"
        return value.name if uniform and _is_readable(value) else None
    op = value.defining_op
    assert op is not None
    if op.name == "arith.constant":
        return str(int(op.attributes["value"])) if isinstance(op.result.type, IntegerType) else None
    if op.name in _SAME_NUMBER:
        return _expression(op.operand)
    if op.name == "tt.addptr" and isinstance(op.result.type, PointerType):
        pointer, offset = (_expression(entry) for entry in op.operands)
        width = bit_width(op.result.type.pointee) // 8
        return None if pointer is None or offset is None else f"{pointer} {offset} {width} * +"
    operator = _OPERATORS.get(op.name)
    if operator is None:
        return None
    left, right = (_expression(entry) for entry in op.operands)
    return None if left is None or right is None else f"{left} {right} {operator}"


def _is_readable(argument: Value) -> bool:
    return bool(argument.name) and (isinstance(argument.type, PointerType) or str(argument.type) in READABLE)
