"""Operations on whole tiles that are not reductions: gathers, histograms, concatenation, functions of elements. Names as in Triton."""

from __future__ import annotations

from typing import Any

from kernelpack.frontend import tile_ops, tiles
from kernelpack.language.builtin import Generator, builtin, member
from kernelpack.language.values import tensor

__all__ = ["cat", "gather", "histogram", "map_elementwise"]


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
