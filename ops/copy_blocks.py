"""copy_blocks: copies blocks of a paged cache to others of its blocks, in place."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.knobs import DEBUG

from ._roles import begin_early, early
from ._rows import DTYPES

RANGES = {"dtypes": ("float32", "float16", "bfloat16", "float8_e4m3fn"), "block_elements": (0, 2**31 - 1)}

COMPARED = tl.constexpr(1024)
"""Up to so many pairs, checks compare each with all others."""


class Blocks(NamedTuple):
    """The blocks of a cache: how many elements lie from one to the next, and how many one has."""

    data: tl.tensor
    step: tl.int64
    size: int


@kp.jit(debug=True)
def check_pair(pairs, pair, count, blocks):
    """Ends the program where a block of a pair is none, or where what a copy writes is read or written by another."""
    source, target = tl.load(pairs + 2 * pair), tl.load(pairs + 2 * pair + 1)
    inside = (source >= 0) & (source < blocks) & (target >= 0) & (target < blocks)
    tl.device_assert(inside, "copy_blocks: pairs: a block lies outside of key_cache")
    if count <= COMPARED:
        for begin in range(0, 2 * count, 64):
            at = begin + tl.arange(0, 64)
            other = tl.load(pairs + at, mask=(at < 2 * count) & (at // 2 != pair), other=-1)
            tl.device_assert(other != target, "copy_blocks: pairs: a block that is copied to comes in another pair too")


@kp.jit
def copy_block(cache, source, target, begin, end, BLOCK: tl.constexpr):
    """Copies elements from `begin` to `end` of a block."""
    for first in range(begin, end, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(cache.data + source * cache.step + at, mask=at < end)
        tl.store(cache.data + target * cache.step + at, value, mask=at < end)


@kp.jit
def copy_blocks_kernel(
    keys, values, pairs, count: tl.int64, blocks: tl.int64,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Copies CHUNK elements of a pair's block of keys, and as many of values; in blocks, or both at once where CHUNK is BLOCK."""
    begin_early()
    parts = tl.cdiv(tl.maximum(keys.size, values.size), CHUNK)
    pair = (tl.program_id(0) // parts).to(tl.int64)
    begin = tl.program_id(0) % parts * CHUNK
    if CHECKED:
        check_pair(pairs, pair, count, blocks)
    source, target = tl.load(pairs + 2 * pair), tl.load(pairs + 2 * pair + 1)
    if (source >= 0) & (source < blocks) & (target >= 0) & (target < blocks):
        if CHUNK == BLOCK:  # all is asked for before anything is written
            at = begin + tl.arange(0, BLOCK)
            key = tl.load(keys.data + source * keys.step + at, mask=at < keys.size)
            value = tl.load(values.data + source * values.step + at, mask=at < values.size)
            tl.store(keys.data + target * keys.step + at, key, mask=at < keys.size)
            tl.store(values.data + target * values.step + at, value, mask=at < values.size)
        else:
            copy_block(keys, source, target, begin, tl.minimum(begin + CHUNK, keys.size), BLOCK)
            copy_block(values, source, target, begin, tl.minimum(begin + CHUNK, values.size), BLOCK)


def config(point):
    if point.target.backend == "cpu":
        return kp.Config({"CHUNK": 16384, "BLOCK": 256, "CHECKED": True})
    return kp.Config({"CHUNK": 2048, "BLOCK": 2048, "CHECKED": DEBUG.is_on()}, num_warps=4, launch_pdl=early(point))


def check_blocks(cache, name):
    """A host function's check that the elements of each block of a cache lie side by side. Returns how many these are."""
    kp.check(cache.dim() == 4, f"{name} must have 4 dimensions, it has shape {cache.shape}")
    size = cache.shape[1] * cache.shape[2] * cache.shape[3]
    last = cache.stride(3) == 1 or cache.shape[3] <= 1
    heads = cache.stride(2) == cache.shape[3] or cache.shape[2] <= 1
    slots = cache.stride(1) == cache.shape[2] * cache.shape[3] or cache.shape[1] <= 1
    kp.check(
        size == 0 or (last and heads and slots),
        f"the blocks of {name} must be contiguous, its strides are {cache.stride()}",
    )
    return size


@kp.op(
    "copy_blocks(Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor pairs) -> ()",
    variants={"key_cache": [*DTYPES, tl.float8e4nv], "value_cache": kp.same_as("key_cache"), "pairs": [tl.int64]},
    configs={"": config},
    specialize=[kp.aligned("key_cache", "value_cache", divisible=("keys.size", "values.size"))],
)
def copy_blocks(key_cache, value_cache, pairs):
    """Copies block pairs[i, 0] to block pairs[i, 1], for each row of `pairs` [n, 2], int64, of `key_cache` and of `value_cache` [blocks,
    block size, key heads, size], in place.

    Caches have one dtype and as many blocks; the elements of a block lie side by side. A block that is copied to comes in no other pair.

    On CPUs these are errors: a block outside of the caches and, of up to 1,024 pairs, a block that is copied to and comes in another
    pair. On GPUs they are checked in kernels that were compiled with KERNELPACK_DEBUG=1, when Python runs the op or builds it; else
    a pair with a block outside is not copied, and what copies that meet leave is not defined.
    """
    key_size = check_blocks(key_cache, "key_cache")
    value_size = check_blocks(value_cache, "value_cache")
    kp.check(
        value_cache.shape[0] == key_cache.shape[0],
        f"value_cache has {value_cache.shape[0]} blocks, key_cache has {key_cache.shape[0]}",
    )
    kp.check(pairs.dim() == 2 and pairs.shape[1] == 2, f"pairs has shape {pairs.shape}, expected two columns: from and to")
    kp.check(pairs.is_contiguous(), f"pairs must be contiguous, its strides are {pairs.stride()}")
    size = max(key_size, value_size)
    count = pairs.shape[0]
    copy_blocks_kernel[lambda meta: (count * kp.cdiv(size, meta["CHUNK"]),)](
        Blocks(key_cache, key_cache.stride(0), key_size), Blocks(value_cache, value_cache.stride(0), value_size),
        pairs, count, key_cache.shape[0],
    )  # fmt: skip


def reference(key_cache, value_cache, pairs):
    """The same with torch; returns both caches, and writes to no argument."""
    source, target = pairs.unbind(1)
    copies = []
    for cache in (key_cache, value_cache):
        copy = cache.clone()
        copy[target] = cache[source]
        copies.append(copy)
    return tuple(copies)
