"""What gathers within tiles, histograms, concatenation and functions applied to elements mean, as in Triton."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Block, Builder, Region
from kernelpack.kernel.types import block_type, check_shape, describe, dtype, int1, int32
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators
from kernelpack.semantics.tiles import axis, join, permute, reshape


def gather(b: Builder, source: Any, indices: Any, along: object) -> tensor:
    """Returns the elements of a tile at run-time places along an axis; along the other axes places stay."""
    src, index = operators.to_tensor(b, source), operators.to_tensor(b, indices)
    if not index.dtype.is_int():
        raise CompilationError(f"tl.gather takes integers as places, not {index.dtype}")
    if len(src.shape) != len(index.shape) or not src.shape:
        raise CompilationError(f"tl.gather takes tiles of equal rank, got shapes {list(src.shape)} and {list(index.shape)}")
    at = axis(src, along)
    if any(a != c for other, (a, c) in enumerate(zip(src.shape, index.shape, strict=True)) if other != at):
        raise CompilationError(
            f"tl.gather along axis {at} needs equal extents along the others, got {list(src.shape)} and {list(index.shape)}"
        )
    kind = block_type(src.dtype, index.shape)
    return tensor(b.value("tt.gather", [src.handle, index.handle], {"axis": at}), kind)


def histogram(b: Builder, value: Any, bins: object, mask: Any) -> tensor:
    """Returns how often each of the values 0, 1, ... bins - 1 is in a tile of one axis, as int32."""
    src = operators.to_tensor(b, value)
    if len(src.shape) != 1 or not src.dtype.is_int():
        raise CompilationError(f"tl.histogram takes a tile of integers of one axis, got {src.type}")
    (count,) = check_shape([bins])
    operands = [src.handle]
    if mask is not None:
        (when,) = (operators.cast(b, operators.to_tensor(b, mask), int1),)
        operands.append(operators.broadcast_to(b, when, src.shape).handle)
    kind = block_type(int32, [count])
    return tensor(b.value("tt.histogram", operands, result_type=kind.to_ir()), kind)


def cat(b: Builder, x: Any, y: Any, dim: object) -> tensor:
    """Returns two tiles, one after the other along an axis, in order."""
    left, right = operators.to_tensor(b, x), operators.to_tensor(b, y)
    if left.type != right.type or not left.shape:
        raise CompilationError(f"tl.cat takes tiles of one type and shape, not {left.type} and {right.type}")
    rank, at = len(left.shape), axis(left, dim, "dim")
    joined = permute(b, join(b, left, right), [*range(at), rank, *range(at, rank)])
    return reshape(b, joined, [*left.shape[:at], 2 * left.shape[at], *left.shape[at + 1 :]])


def item(b: Builder, value: Any) -> tensor:
    """Returns the only element of a tile as a scalar."""
    src = operators.to_tensor(b, value)
    if src.numel != 1:
        raise CompilationError(
            f"only a tile of one element has an item, not one of shape {list(src.shape)}",
            cure="reduce the tile to a scalar with tl.sum or tl.max",
        )
    return operators.unsplat(b, src)


def map_elementwise(
    b: Builder, function: Callable[[Sequence[tensor]], Sequence[tensor]], values: Sequence[Any], pack: object
) -> list[tensor]:
    """Returns what a scalar function gives for the elements of tiles, `pack` neighbours at a time."""
    if isinstance(pack, bool) or not isinstance(pack, int) or pack < 1:
        raise CompilationError(f"pack of tl.map_elementwise is a compile-time number of elements, got {describe(pack)}")
    tiles = operators.broadcast(b, *(operators.to_tensor(b, value) for value in values))
    if not tiles or not tiles[0].shape:
        raise CompilationError("tl.map_elementwise needs at least one tile")
    taken = [tile.dtype for tile in tiles for _ in range(pack)]
    block = Block([kind.to_ir() for kind in taken])
    with operators.inside(b, block):
        given = [
            operators.to_tensor(b, value)
            for value in function([tensor(argument, kind) for argument, kind in zip(block.arguments, taken, strict=True)])
        ]
        if any(value.shape for value in given):
            raise CompilationError("the function of tl.map_elementwise gives scalars")
        b.create("tt.map_elementwise.return", [value.handle for value in given])
    elements = _results([value.dtype for value in given], pack)
    kinds = [block_type(element, tiles[0].shape) for element in elements]
    handles = [tile.handle for tile in tiles]
    op = b.create("tt.map_elementwise", handles, {"pack": pack}, [kind.to_ir() for kind in kinds], [Region([block])])
    return [tensor(result, kind) for result, kind in zip(op.results, kinds, strict=True)]


def _results(given: Sequence[dtype], pack: int) -> list[dtype]:
    if not given or len(given) % pack or any(given[at] != given[at - at % pack] for at in range(len(given))):
        raise CompilationError(
            f"the function of tl.map_elementwise must give {pack} values of one type for each result, "
            f"gives ({', '.join(map(str, given))})"
        )
    return list(given[::pack])
