"""Operations on whole tiles that are not reductions: gathers, histograms, concatenation, functions of elements. Names as in Triton."""

from __future__ import annotations

from typing import Any

from kernelpack.kernel.builtin import Generator, builtin, member
from kernelpack.kernel.types import dtype, float32
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators, tile_ops, tiles
from kernelpack.semantics.scaled_products import scaled_dot

__all__ = ["cat", "dot_scaled", "gather", "histogram", "item", "logical_and", "logical_or", "map_elementwise"]


@member
@builtin
def gather(src: tensor, index: tensor, axis: int, *, _generator: Generator) -> tensor:
    """Returns the elements of `src` at the places `index` along `axis`; along the other axes, of equal extents, places stay.

    Places outside of the tile wrap around.
    """
    return tile_ops.gather(_generator.builder, src, index, axis)


@member
@builtin
def histogram(input: tensor, num_bins: int, mask: Any = None, *, _generator: Generator) -> tensor:
    """Returns how often each of 0, 1, ... num_bins - 1 is in a tile of integers of one axis, as int32.

    Elements with other values, or where `mask` is false, are not counted.
    """
    return tile_ops.histogram(_generator.builder, input, num_bins, mask)


@member
@builtin
def item(x: tensor, *, _generator: Generator) -> tensor:
    """Returns the only element of a tile as a scalar."""
    return tile_ops.item(_generator.builder, x)


@member
@builtin
def logical_and(input: tensor, other: Any, *, _generator: Generator) -> tensor:
    """Returns where both are not zero, as int1."""
    return operators.logical(_generator.builder, "&", input, other)


@member
@builtin
def logical_or(input: tensor, other: Any, *, _generator: Generator) -> tensor:
    """Returns where one of both is not zero, as int1."""
    return operators.logical(_generator.builder, "|", input, other)


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0, *, _generator: Generator) -> tensor:
    """Concatenates two tiles of one type and shape along `dim`. With `can_reorder` (tiles of one axis) the order may change."""
    b = _generator.builder
    return tiles.cat(b, input, other) if can_reorder else tile_ops.cat(b, input, other, dim)


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: int = 1, _generator: Generator) -> Any:
    """Returns what a @jit function of scalars gives for each element of tiles; it may branch and loop, unlike code on tiles.

    With `pack` n it takes n neighbours of each tile in turn and gives n values of each result.
    """
    single = True

    def apply(elements: Any) -> Any:
        nonlocal single
        given = _generator.inline(scalar_fn, elements)
        single = not isinstance(given, tuple)
        return (given,) if single else given

    made = tile_ops.map_elementwise(_generator.builder, apply, args, pack)
    return made[0] if single and len(made) == 1 else tuple(made)


@builtin
def dot_scaled(
    lhs: tensor,
    lhs_scale: tensor | None,
    lhs_format: str,
    rhs: tensor,
    rhs_scale: tensor | None,
    rhs_format: str,
    acc: tensor | None = None,
    fast_math: bool = False,
    lhs_k_pack: bool = True,
    rhs_k_pack: bool = True,
    out_dtype: dtype = float32,
    *,
    _generator: Generator,
) -> tensor:
    """Returns lhs @ rhs (+ acc) of operands in microscaling formats: e2m1 (two in a byte), e4m3, e5m2, fp16 or bf16.

    Scales have shape [M, K / 32] and [N, K / 32]: the exponents of powers of two in uint8. Without `k_pack` the two numbers of a
    byte are neighbours along the other axis than K. `fast_math` takes no care of scales that are NaN.
    """
    left, right = (lhs, lhs_scale, lhs_format, lhs_k_pack), (rhs, rhs_scale, rhs_format, rhs_k_pack)
    return scaled_dot(_generator.builder, left, right, acc, out_dtype, fast_math)
