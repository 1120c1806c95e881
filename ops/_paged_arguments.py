"""What host functions of attention to keys in pages do with their arguments: checks, and what kernels are told of them."""

import math
from typing import NamedTuple

import kernelpack as kp

from ._paged import CacheStrides, Rules
from ._rows import check_contiguous

MAX_HEAD_DIM = 256


def check_cache(cache, name):
    """A host function's checks of one of the caches."""
    kp.check(
        cache.dim() == 4, f"{name} must have 4 dimensions (blocks, block size, kv heads, head size), its shape is {cache.shape}"
    )
    kp.check(cache.shape[-1] <= MAX_HEAD_DIM, f"{name} has head size {cache.shape[-1]}, at most {MAX_HEAD_DIM} is supported")
    check_contiguous(cache, name)
    kp.check(cache.shape[0] < 2**31, f"{name} has {cache.shape[0]} blocks, which int32 cannot count")


def check_block_size(size, name):
    """A host function's check of how many keys a block of the cache of that name has."""
    kp.check(size >= 16 and size & (size - 1) == 0, f"{name} has blocks of {size} keys, expected a power of two from 16 on")


def check_table(block_table, sequences):
    """A host function's check of the blocks of each sequence."""
    kp.check(
        block_table.dim() == 2 and block_table.shape[0] == sequences,
        f"block_table has shape {block_table.shape}, expected ({sequences}, columns): a row for each sequence of key_lengths",
    )
    kp.check(
        block_table.stride(1) == 1 or block_table.shape[1] <= 1,
        f"the last dimension of block_table must be contiguous, its stride is {block_table.stride(1)}\n  to fix: call .contiguous() on it",
    )


def check_scale(scale, name, kv_heads):
    """A host function's check of the scales of a cache, which are one or one for each key head."""
    if scale is not None:
        kp.check(
            scale.dim() == 1 and (scale.shape[0] == 1 or scale.shape[0] == kv_heads),
            f"{name} has shape {scale.shape}, expected (1,) or ({kv_heads},), one for each key head",
        )


def check_numbers(x, name, count, meaning):
    """A host function's check of a tensor of one number for each sequence, or one more."""
    kp.check(x.dim() == 1 and x.shape[0] == count, f"{name} has shape {x.shape}, expected ({count},): {meaning}")
    kp.check(
        x.stride(0) == 1 or count <= 1,
        f"{name} must be contiguous, its stride is {x.stride(0)}\n  to fix: call .contiguous() on it before the op",
    )


def check_groups(heads, kv_heads, name):
    """A host function's check that as many query heads share each head of the keys of that name."""
    kp.check(
        heads == 0 or (kv_heads > 0 and heads % kv_heads == 0),
        f"query has {heads} heads, which is no multiple of {name}'s {kv_heads}",
    )


def rules_of(query, causal, window, softcap, scale):
    """A host function's Rules, of the op's arguments."""
    kp.check(window is None or causal, "window is given without causal=True, which it is a part of")
    if window is None:
        window = 0
    else:
        kp.check(window > 0 and window < 2**30, f"window is {window}, expected 1 ... 2**30 - 1")
    if softcap is None:
        softcap = 0.0
    else:
        kp.check(softcap > 0.0, f"softcap is {softcap}, expected a positive number")
    if scale is None:
        scale = 1.0 / math.sqrt(max(query.shape[2], 1))
    return Rules(causal, window, softcap, scale)


class Keys(NamedTuple):
    """How keys and values lie, in a host function: the strides, that of the table's rows, `blocks` blocks of 2^block_bits keys, `pages` pieces of
    memory of `page_rows` rows, and how many keys a row of the table holds at most."""

    key: CacheStrides
    value: CacheStrides
    table: int
    kv_heads: int
    value_dim: int
    blocks: int
    block_bits: int
    pages: int
    page_rows: int
    most: int


class Bounds(NamedTuple):
    """What decides how much is launched: the arguments of the ops."""

    queries: int
    keys: int
    batch_invariant: bool
