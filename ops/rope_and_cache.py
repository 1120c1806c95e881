"""rope_and_cache: rotates new queries and keys by their positions, in place, and writes keys and values into a paged cache."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.knobs import DEBUG

from ._roles import begin_early, early
from ._rows import DTYPES, check_contiguous

RANGES = {
    "dtypes": ("float32", "float16", "bfloat16"),
    "cache_dtypes": ("that of the keys", "float8_e4m3fn"),
    "head_size": (1, 2**31 - 1),
    "block_size": (1, 2**31 - 1),
}

COMPARED = tl.constexpr(1024)
"""Up to so many tokens, checks compare each slot with all later ones: on a CPU a tenth of the op's time at most."""

E4M3_MAX = tl.constexpr(448.0)


class Heads(NamedTuple):
    """A tensor [tokens, heads, size]: its strides in elements, how many heads it has, and how long they are."""

    data: tl.tensor
    token: tl.int64
    head: tl.int64
    heads: int
    size: int


class Cache(NamedTuple):
    """A cache [blocks, block size, heads, size]: its strides in elements, and the scales by which elements are divided, `step` elements
    from head to head, if it is `scaled`."""

    data: tl.tensor
    block: tl.int64
    slot: tl.int64
    head: tl.int64
    scale: tl.tensor
    step: int
    scaled: int


class Angles(NamedTuple):
    """Cosines of `rotary` / 2 pairs and then their sines, for `count` positions; which two elements of a head are a pair."""

    data: tl.tensor
    position: tl.int64
    rotary: int
    count: int
    interleaved: int


class Tokens(NamedTuple):
    """Positions and slots of `count` tokens, of which a program takes `per_program`; how many slots there are, and in each block."""

    positions: tl.tensor
    slots: tl.tensor
    count: int
    per_program: int
    slot_count: tl.int64
    block_size: int


@kp.jit(debug=True)
def check_token(token, position, slot, angles, tokens):
    """Ends the program where a token's position or slot is none. Negative slots are right: they say that a token is not written."""
    tl.device_assert(
        (position >= 0) & (position < angles.count), "rope_and_cache: positions: one lies outside of the rows of angles"
    )
    tl.device_assert(
        slot < tokens.slot_count, "rope_and_cache: slots: one lies outside of key_cache, which has blocks * block size slots"
    )
    if (tokens.count <= COMPARED) & (slot >= 0):
        for begin in range(token + 1, tokens.count, 64):
            at = begin + tl.arange(0, 64)
            later = tl.load(tokens.slots + at, mask=at < tokens.count, other=-1)
            tl.device_assert(later != slot, "rope_and_cache: slots: one is written twice")


@kp.jit
def place_in(cache, slot, block_size, head):
    """Returns where heads [HEADS, 1] of a token lie in a cache."""
    return cache.data + (slot // block_size) * cache.block + (slot % block_size) * cache.slot + head * cache.head


@kp.jit
def put(target, value, scale, scaled, inside):
    """Stores elements of a cache: divided by their scale; in 8 bits what is too large becomes the largest number."""
    value = value.to(tl.float32)
    if scaled:
        value = value / scale
    if target.dtype.element_ty == tl.float8e4nv:
        value = tl.where(value > E4M3_MAX, E4M3_MAX, tl.where(value < -E4M3_MAX, -E4M3_MAX, value))
    tl.store(target, value.to(target.dtype.element_ty), mask=inside)


@kp.jit
def scales_of(cache, head, here):
    """Returns the scales of heads [HEADS, 1]."""
    return tl.load(cache.scale + head * cache.step, mask=here & (cache.scaled != 0), other=1.0)


@kp.jit
def angles_of(row, column, pairs, known):
    """Returns cosines and sines of a position's pairs. Elements are loaded before them: where these lie is known later."""
    inside = (column < pairs) & known
    return tl.load(row + column, mask=inside, other=float("nan")), tl.load(
        row + pairs + column, mask=inside, other=float("nan")
    )


@kp.jit
def rotate(x, head, angles, position, token, cache, target, written, BLOCK: tl.constexpr):
    """Turns the heads [HEADS, 1] of a token in place. Where there is a cache and the token is `written`, they are stored at `target` too.

    Angles of a position that the table has not are NaN, and so are the elements that they turn.
    """
    pairs = angles.rotary // 2
    here = head < x.heads
    source = x.data + token * x.token + head * x.head
    row = angles.data + position * angles.position
    known = (position >= 0) & (position < angles.count)
    if cache is not None:
        scale = scales_of(cache, head, here)
    for begin in range(0, pairs, BLOCK):
        column = begin + tl.arange(0, BLOCK)[None, :]
        if angles.interleaved:
            both = 2 * begin + tl.arange(0, 2 * BLOCK)[None, :]
            inside = (both < 2 * pairs) & here
            loaded = tl.load(source + both, mask=inside, other=0.0).to(tl.float32)
            c, s = angles_of(row, column, pairs, known)
            a, b = tl.split(tl.reshape(loaded, [loaded.shape[0], BLOCK, 2]))
            turned = tl.interleave(a * c - b * s, b * c + a * s).to(x.data.dtype.element_ty)
            tl.store(source + both, turned, mask=inside)
            if cache is not None:
                put(target + both, turned, scale, cache.scaled, inside & written)
        else:
            inside = (column < pairs) & here
            a = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
            b = tl.load(source + pairs + column, mask=inside, other=0.0).to(tl.float32)
            c, s = angles_of(row, column, pairs, known)
            left = (a * c - b * s).to(x.data.dtype.element_ty)
            right = (b * c + a * s).to(x.data.dtype.element_ty)
            tl.store(source + column, left, mask=inside)
            tl.store(source + pairs + column, right, mask=inside)
            if cache is not None:
                put(target + column, left, scale, cache.scaled, inside & written)
                put(target + pairs + column, right, scale, cache.scaled, inside & written)
    if cache is not None:
        store_heads(x, head, token, cache, target, 2 * pairs, written, BLOCK)


@kp.jit
def store_heads(x, head, token, cache, target, first, written, BLOCK: tl.constexpr):
    """Copies the heads [HEADS, 1] of a token into a cache, from their element `first` on, where the token is `written`."""
    if written:
        here = head < x.heads
        scale = scales_of(cache, head, here)
        source = x.data + token * x.token + head * x.head
        for begin in range(first, x.size, BLOCK):
            column = begin + tl.arange(0, BLOCK)[None, :]
            inside = (column < x.size) & here
            put(target + column, tl.load(source + column, mask=inside, other=0.0), scale, cache.scaled, inside)


@kp.jit
def rope_and_cache_kernel(
    query, key, value, key_cache, value_cache, angles, tokens,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, WALK: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Takes all heads of a program's tokens, one after the other, where it has to WALK, else HEADS heads of one token: of the queries, of
    the keys or of the values."""
    begin_early()
    heads = tl.arange(0, HEADS)[:, None]
    if WALK:
        first = tl.program_id(0).to(tl.int64) * tokens.per_program
        for token in range(first, tl.minimum(first + tokens.per_program, tokens.count)):
            position, slot = tl.load(tokens.positions + token), tl.load(tokens.slots + token)
            if CHECKED:
                check_token(token, position, slot, angles, tokens)
            written = (slot >= 0) & (slot < tokens.slot_count)
            for begin in range(0, query.heads, HEADS):
                rotate(query, begin + heads, angles, position, token, None, query.data, False, BLOCK)
            for begin in range(0, key.heads, HEADS):
                head = begin + heads
                target = place_in(key_cache, slot, tokens.block_size, head)
                rotate(key, head, angles, position, token, key_cache, target, written, BLOCK)
                target = place_in(value_cache, slot, tokens.block_size, head)
                store_heads(value, head, token, value_cache, target, 0, written, BLOCK)
    else:
        query_groups, key_groups = tl.cdiv(query.heads, HEADS), tl.cdiv(key.heads, HEADS)
        groups = query_groups + 2 * key_groups
        token = (tl.program_id(0) // groups).to(tl.int64)
        group = tl.program_id(0) % groups
        position, slot = tl.load(tokens.positions + token), tl.load(tokens.slots + token)
        if CHECKED:
            check_token(token, position, slot, angles, tokens)
        written = (slot >= 0) & (slot < tokens.slot_count)
        if group < query_groups:
            rotate(query, group * HEADS + heads, angles, position, token, None, query.data, False, BLOCK)
        elif group < query_groups + key_groups:
            head = (group - query_groups) * HEADS + heads
            target = place_in(key_cache, slot, tokens.block_size, head)
            rotate(key, head, angles, position, token, key_cache, target, written, BLOCK)
        else:
            head = (group - query_groups - key_groups) * HEADS + heads
            target = place_in(value_cache, slot, tokens.block_size, head)
            store_heads(value, head, token, value_cache, target, 0, written, BLOCK)


def config(point):
    """Checks that stop a kernel are free on a CPU. On a GPU they are compiled for debugging alone: there the error comes with the next
    synchronisation, and no further call works."""
    if point.target.backend == "cpu":
        return kp.Config({"HEADS": 1, "BLOCK": 32, "WALK": True, "CHECKED": True})
    return kp.Config({"HEADS": 8, "BLOCK": 64, "WALK": False, "CHECKED": DEBUG.is_on()}, num_warps=2, launch_pdl=early(point))


def check_scale(scale, name, heads):
    """A host function's check of a cache's scales. Returns how many elements lie from one head's to the next one's."""
    kp.check(
        scale.dim() == 1 and (scale.shape[0] == 1 or scale.shape[0] == heads),
        f"{name} has shape {scale.shape}, expected (1,), or one value for each of {heads} key heads",
    )
    kp.check(scale.stride(0) == 1 or scale.shape[0] <= 1, f"{name} must be contiguous, its stride is {scale.stride(0)}")
    return 1 if scale.shape[0] > 1 else 0


def check_cache(cache, name, rows, rows_name, slots_of):
    """A host function's check that a cache can hold the heads of `rows`, and has the slots of another one."""
    kp.check(cache.dim() == 4, f"{name} must have 4 dimensions, it has shape {cache.shape}")
    kp.check(
        cache.shape[2] == rows.shape[1] and cache.shape[3] == rows.shape[2],
        f"{name} has shape {cache.shape}, expected {rows.shape[1]} heads of {rows.shape[2]}, as {rows_name} has",
    )
    kp.check(
        cache.shape[0] == slots_of.shape[0] and cache.shape[1] == slots_of.shape[1],
        f"{name} has {cache.shape[0]} blocks of {cache.shape[1]}, key_cache has {slots_of.shape[0]} of {slots_of.shape[1]}",
    )
    check_contiguous(cache, name)


def check_tokens(x, name, count):
    """A host function's check that a tensor has one element for each token."""
    kp.check(
        x.dim() == 1 and x.shape[0] == count, f"{name} has shape {x.shape}, expected ({count},): one for each token of query"
    )
    kp.check(x.stride(0) == 1 or count <= 1, f"{name} must be contiguous, its stride is {x.stride(0)}")


@kp.op(
    "rope_and_cache(Tensor(a!) query, Tensor(b!) key, Tensor value, Tensor(c!) key_cache, Tensor(d!) value_cache, Tensor positions, "
    "Tensor angles, Tensor slots, *, bool interleaved=False, Tensor? key_scale=None, Tensor? value_scale=None) -> ()",
    variants={
        "query": DTYPES,
        "key": kp.same_as("query"),
        "value": kp.same_as("query"),
        "key_cache": [kp.same_as("query"), tl.float8e4nv],
        "value_cache": kp.same_as("key_cache"),
        "positions": [tl.int64],
        "angles": [tl.float32],
        "slots": [tl.int64],
        "key_scale": [None, tl.float32],
        "value_scale": [None, tl.float32],
    },
    configs={"": config},
    specialize=[kp.aligned("query", "key", "value", "key_cache", "value_cache", "angles")],
)
def rope_and_cache(
    query, key, value, key_cache, value_cache, positions, angles, slots, interleaved, key_scale, value_scale
):  # fmt: skip
    """Rotates `query` [tokens, heads, d] and `key` [tokens, key heads, d] in place, and writes the rotated keys and `value` [tokens, key
    heads, value size] to the slots of their tokens in `key_cache` and `value_cache` [blocks, block size, key heads, d or value size].

    `angles` [most positions, rotary], float32, holds the cosines of a position's rotary / 2 pairs, then their sines; `positions` [tokens],
    int64, says which row a token takes. Pairs are elements (i, i + rotary / 2) of a head or, where `interleaved`, (2i, 2i + 1); elements
    from `rotary` on stay. Whatever scales rotary embeddings (linear, YaRN, ...) is part of the table.

    Slot s of `slots` [tokens], int64, is place s % block size of block s // block size; a token whose slot is negative is not written.
    Caches have the dtype of `key` or are float8_e4m3fn. `key_scale` and `value_scale`, float32, hold one value, or one for each key head:
    what is written is divided by it. Numbers beyond 448 become 448 in float8_e4m3fn. A cache in float8_e4m3fn takes keys as they were
    rounded to their own dtype.

    On CPUs these are errors: a position outside of `angles`, a slot outside of the caches and, of up to 1,024 tokens, a slot that is given
    twice. On GPUs they are checked in kernels that were compiled with KERNELPACK_DEBUG=1, when Python runs the op or builds it; else a
    position outside gives NaN, a slot outside is not written, and of a slot that is given twice one token's elements remain, or some of
    either's.
    """
    kp.check(query.dim() == 3, f"query must have 3 dimensions, it has shape {query.shape}")
    kp.check(key.dim() == 3, f"key must have 3 dimensions, it has shape {key.shape}")
    kp.check(value.dim() == 3, f"value must have 3 dimensions, it has shape {value.shape}")
    count, heads, size = query.shape
    kp.check(
        key.shape[0] == count and key.shape[2] == size,
        f"key has shape {key.shape}, expected {count} tokens and heads of {size}, as query has",
    )
    kp.check(
        value.shape[0] == count and value.shape[1] == key.shape[1],
        f"value has shape {value.shape}, expected {count} tokens of {key.shape[1]} heads, as key has",
    )
    check_contiguous(query, "query")
    check_contiguous(key, "key")
    check_contiguous(value, "value")
    check_cache(key_cache, "key_cache", key, "key", key_cache)
    check_cache(value_cache, "value_cache", value, "value", key_cache)
    check_tokens(positions, "positions", count)
    check_tokens(slots, "slots", count)
    kp.check(angles.dim() == 2, f"angles must have 2 dimensions, it has shape {angles.shape}")
    check_contiguous(angles, "angles")
    kp.check(
        angles.shape[1] % 2 == 0 and angles.shape[1] <= size,
        f"angles has {angles.shape[1]} columns, expected a cosine and a sine for each pair of a head: an even number up to {size}",
    )
    key_step, value_step = 0, 0
    if key_scale is not None:
        key_step = check_scale(key_scale, "key_scale", key.shape[1])
    if value_scale is not None:
        value_step = check_scale(value_scale, "value_scale", key.shape[1])
    elements = heads * size + key.shape[1] * (size + value.shape[2])
    per_program = 1 if query.is_cuda else max(1, 16384 // max(elements, 1))
    rope_and_cache_kernel[
        lambda meta: (
            (
                count * (kp.cdiv(heads, meta["HEADS"]) + 2 * kp.cdiv(key.shape[1], meta["HEADS"]))
                if query.is_cuda
                else kp.cdiv(count, per_program)
            ),
        )
    ](
        Heads(query, query.stride(0), query.stride(1), heads, size),
        Heads(key, key.stride(0), key.stride(1), key.shape[1], size),
        Heads(value, value.stride(0), value.stride(1), key.shape[1], value.shape[2]),
        Cache(
            key_cache, key_cache.stride(0), key_cache.stride(1), key_cache.stride(2),
            angles if key_scale is None else key_scale, key_step, key_scale is not None,
        ),
        Cache(
            value_cache, value_cache.stride(0), value_cache.stride(1), value_cache.stride(2),
            angles if value_scale is None else value_scale, value_step, value_scale is not None,
        ),
        Angles(angles, angles.stride(0), angles.shape[1], angles.shape[0], interleaved),
        Tokens(positions, slots, count, per_program, key_cache.shape[0] * key_cache.shape[1], key_cache.shape[1]),
    )  # fmt: skip


def reference(
    query, key, value, key_cache, value_cache, positions, angles, slots, interleaved=False, key_scale=None, value_scale=None
):  # fmt: skip
    """The same with torch, in any float dtype; returns queries, keys and caches, and writes to no argument."""
    import torch  # builds do without it

    cos, sin = angles[positions].unsqueeze(1).chunk(2, -1)
    rotary = angles.shape[1]

    def turned(x):
        pairs = x[..., :rotary].unflatten(-1, (-1, 2) if interleaved else (2, -1))
        a, b = pairs.unbind(-1 if interleaved else -2)
        both = torch.stack((a * cos - b * sin, b * cos + a * sin), -1 if interleaved else -2).flatten(-2)
        return torch.cat((both.to(x.dtype), x[..., rotary:]), -1)

    def written(cache, x, scale):
        x = x if scale is None else x / scale[:, None]
        x = x.clamp(-448.0, 448.0) if cache.dtype == torch.float8_e4m3fn else x
        kept = slots >= 0
        flat = cache.flatten(0, 1).clone()
        flat[slots[kept]] = x[kept].to(cache.dtype)
        return flat.unflatten(0, cache.shape[:2])

    query, key = turned(query), turned(key)
    return query, key, written(key_cache, key, key_scale), written(value_cache, value, value_scale)
