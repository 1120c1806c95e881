"""Products of microscaling formats: 4- and 8-bit floats that share a power of two in blocks along K (OCP Microscaling Formats v1.0).

Operands are widened to float16 or bfloat16, which hold every element, multiplied by their scales, and multiplied as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Builder
from kernelpack.kernel.types import bfloat16, describe, dtype, float8e4nv, float8e5, float16, float32, int8, int16, int32, uint8
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators, tiles

FORMATS: dict[str, tuple[dtype, ...]] = {
    "e2m1": (uint8, int8),
    "e4m3": (float8e4nv, uint8, int8),
    "e5m2": (float8e5, uint8, int8),
    "fp16": (float16,),
    "bf16": (bfloat16,),
}
"""The types in which a format comes; 8-bit ones also as their bits, two e2m1 in a byte, the first in its lower half."""
_BLOCKS = (16, 32)
_NAN_SCALE = 255


def scaled_dot(
    b: Builder,
    left: Sequence[Any],
    right: Sequence[Any],
    acc: Any,
    out_dtype: dtype,
    fast_math: bool,
) -> tensor:
    """Returns the product of two operands, each (tile, scale or None, format, whether bytes hold neighbours along K)."""
    formats = [_format(side[2]) for side in (left, right)]
    wide = float16 if "fp16" in formats else bfloat16
    operands = []
    blocks: list[int] = []
    for (value, scale, _, k_pack), word, k_axis in zip((left, right), formats, (-1, -2), strict=True):
        if not k_pack and word != "e2m1":
            raise CompilationError(
                f"an operand in format {word} has one element in a place: k_pack=False is for e2m1", cure="leave k_pack out"
            )
        tile = _elements(b, value, word, wide, k_axis, k_pack)
        if scale is not None:
            blocks.append(_block_length(tile, scale, k_axis))
            tile = _scaled(b, tile, scale, blocks[-1], wide, k_axis, fast_math)
        operands.append(tile)
    if len(set(blocks)) == 2:
        raise CompilationError(
            f"a scale is for {blocks[0]} elements along K on the left and for {blocks[1]} on the right",
            cure="give both operands scales for blocks of one length",
        ) from ValueError(f"Operands must have the same scale factor; (lhs: {blocks[0]} vs rhs: {blocks[1]})")
    return tiles.dot(b, operands[0], operands[1], acc, None, None, None, out_dtype)


def _format(word: object) -> str:
    if isinstance(word, str) and word in FORMATS:
        return word
    raise CompilationError(f"{describe(word)} is no format of tl.dot_scaled", cure=f"use one of {', '.join(FORMATS)}")


def _elements(b: Builder, value: Any, word: str, wide: dtype, k_axis: int, k_pack: bool) -> tensor:
    """Returns an operand's elements in a wide type."""
    if not isinstance(value, tensor) or len(value.shape) < 2 or value.dtype not in FORMATS[word]:
        kinds = " or ".join(map(str, FORMATS[word]))
        raise CompilationError(f"an operand of tl.dot_scaled in format {word} is a tile of {kinds}, got {describe(value)}")
    if word == "e2m1":
        return _small_elements(b, value, wide, k_axis if k_pack else -3 - k_axis)
    exact = FORMATS[word][0]
    return operators.cast(b, value if value.dtype == exact else operators.bitcast(b, value, exact), wide)


def _small_elements(b: Builder, value: tensor, wide: dtype, packed: int) -> tensor:
    """Returns the e2m1 numbers of bytes, which lie side by side along an axis."""
    bits = operators.cast(b, operators.bitcast(b, value, uint8), int16)
    halves = [_number(b, half, wide) for half in (bits, operators.arithmetic(b, ">>", bits, 4))]
    rank, at = len(value.shape), packed % len(value.shape)
    joined = tiles.permute(b, tiles.join(b, *halves), [*range(at + 1), rank, *range(at + 1, rank)])
    return tiles.reshape(b, joined, [*value.shape[:at], 2 * value.shape[at], *value.shape[at + 1 :]])


def _number(b: Builder, bits: tensor, wide: dtype) -> tensor:
    """Returns the number that the lowest four bits are: a sign, two bits of exponent with bias 1, one of mantissa."""
    mantissa, bias = wide.fp_mantissa_width, wide.exponent_bias
    magnitude = operators.arithmetic(b, "&", bits, 7)
    placed = operators.arithmetic(b, "<<", magnitude, mantissa - 1)
    normal = operators.arithmetic(b, "+", placed, (bias - 1) << mantissa)
    half = operators.where(b, operators.compare(b, "==", magnitude, 1), (bias - 1) << mantissa, 0)
    half = operators.cast(b, half, int16)
    number = operators.where(b, operators.compare(b, ">=", magnitude, 2), normal, half)
    sign = operators.arithmetic(b, "<<", operators.arithmetic(b, "&", bits, 8), 12)
    return operators.bitcast(b, operators.arithmetic(b, "|", number, sign), wide)


def _block_length(tile: tensor, scale: Any, k_axis: int) -> int:
    """Returns how many elements along K share a scale. Raises CompilationError for what are no scales of the operand."""
    if not isinstance(scale, tensor) or scale.dtype not in (uint8, int8, float8e4nv):
        raise CompilationError(f"a scale of tl.dot_scaled is a tile of uint8 (or fp8e4nv), got {describe(scale)}")
    depth, rows = tile.shape[k_axis], tile.shape[-3 - k_axis]
    blocks = scale.shape[-1] if scale.shape else 0
    if scale.shape != (*tile.shape[:-2], rows, blocks) or depth not in [blocks * length for length in _BLOCKS]:
        raise CompilationError(
            f"scales of shape {list(scale.shape)} do not fit {rows} rows of {depth} elements along K",
            cure="give one scale for each row (column of the right operand) and block of 16 or 32 elements",
        )
    return depth // blocks


def _scaled(b: Builder, tile: tensor, scale: tensor, length: int, wide: dtype, k_axis: int, fast_math: bool) -> tensor:
    """Multiplies an operand by its scales: a byte, the biased exponent of a power of two, or an e4m3 number, for each block of K."""
    factor, bad = _factor(b, scale, wide)
    product = operators.arithmetic(b, "*", tile, _spread(b, factor, length, k_axis))
    if bad is None or fast_math:
        return product
    nan = operators.constant(b, float("nan"), product.type)
    return operators.where(b, _spread(b, bad, length, k_axis), nan, product)


def _factor(b: Builder, scale: tensor, wide: dtype) -> tuple[tensor, tensor | None]:
    """Returns scales as numbers, and which are NaN."""
    if scale.dtype == float8e4nv:
        return operators.cast(b, scale, wide), None
    bits = operators.bitcast(b, scale, uint8)
    bad = operators.compare(b, "==", bits, _NAN_SCALE)
    if wide == bfloat16:
        shifted = operators.arithmetic(b, "<<", operators.cast(b, bits, int16), bfloat16.fp_mantissa_width)
        return operators.bitcast(b, shifted, bfloat16), bad
    shifted = operators.arithmetic(b, "<<", operators.cast(b, bits, int32), float32.fp_mantissa_width)
    return operators.cast(b, operators.bitcast(b, shifted, float32), float16), bad


def _spread(b: Builder, value: tensor, count: int, k_axis: int) -> tensor:
    """Repeats what belongs to a block for each of its elements, and turns the tile as the operand lies."""
    wide = operators.broadcast_to(b, operators.expand_dims(b, value, len(value.shape)), [*value.shape, count])
    rows = tiles.reshape(b, wide, [*value.shape[:-1], value.shape[-1] * count])
    return rows if k_axis == -1 else tiles.transpose(b, rows)
