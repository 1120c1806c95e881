"""mla_decode: as accurate as torch, the same bits in any batch, inside of its tensors, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.ops.grid import module_of
from tests.ops.guard_pages import call_guarded
from tests.ops.latent_batches import CASES, NAMES, Call, arguments, latent, problem
from tests.ops.levels import EACH_LEVEL, run_at
from tests.ops.paged_batches import DTYPES, MIXED


def attention(*args: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.ops.kernelpack.mla_decode(*args, **kwargs)
    return out, lse


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_errors_are_at_most_twice_those_of_torch(level: str) -> None:
    done = run_at(level, "-m", "tests.ops.latent_batches")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{len(CASES) * len(DTYPES)} cases, 0 inaccurate" in done.stdout


def test_a_key_too_many_would_be_found() -> None:
    batch = latent("drafts", ((3, 300), (2, 17)))
    args, kwargs = arguments(batch, torch.float32)
    assert not problem(batch, torch.float32, attention(*args, **kwargs))
    got = attention(*args, **kwargs | {"causal": False})
    assert "out: error" in problem(batch, torch.float32, got)
    assert "lse: error" in problem(batch, torch.float32, got)


def test_its_reference_is_attention_to_what_the_latents_stand_for() -> None:
    """Keys and values of each head, projected up from the latent: absorbing the projections into queries and results changes nothing."""
    heads, size, keys = 4, 128, 33
    (query, cache, *rest), kwargs = arguments(latent("absorbed", ((1, keys),), heads=heads), torch.float64)
    rows = cache[rest[0][0].long()].flatten(0, 1)[:keys]
    up_key, up_value = torch.randn(2, heads, size, 512, dtype=torch.float64)
    plain = torch.randn(heads, size, dtype=torch.float64)
    own_keys = torch.cat((torch.einsum("hdl,kl->hkd", up_key, rows[:, :512]), rows[None, :, 512:].expand(heads, -1, -1)), -1)
    own_query = torch.cat((plain, query[0, :, 512:]), -1)[:, None]
    values = torch.einsum("hdl,kl->hkd", up_value, rows[:, :512])
    expected = torch.nn.functional.scaled_dot_product_attention(own_query, own_keys, values)[:, 0]
    absorbed = torch.cat((torch.einsum("hd,hdl->hl", plain, up_key), query[0, :, 512:]), -1)[None]
    means, _ = module_of("mla_decode").reference(absorbed, cache, *rest, **kwargs)
    torch.testing.assert_close(torch.einsum("hdl,hl->hd", up_value, means[0]), expected)


@pytest.mark.parametrize("name", ["mixed", "drafts"])
def test_development_run_agrees_with_the_built_op(name: str) -> None:
    args, kwargs = arguments(next(case for case in CASES if case.name == name), torch.bfloat16)
    developed = module_of("mla_decode").mla_decode(*args, **kwargs)
    for ours, other in zip(attention(*args, **kwargs), developed, strict=True):
        assert ours.stride() == other.stride()
        torch.testing.assert_close(ours, other)


def test_strides_are_followed() -> None:
    """Queries between others, and one layer of a cache that holds several."""
    (query, cache, *rest), kwargs = arguments(latent("mixed", MIXED), torch.float32)
    expected = attention(query, cache, *rest, **kwargs)
    wide, layers = torch.randn(query.shape[0], 20, 600)[:, 3:19, 8:584], torch.randn(cache.shape[0], 16, 2, 576)[:, :, 1]
    wide.copy_(query)
    layers.copy_(cache)
    assert all(map(torch.equal, attention(wide, layers, *rest, **kwargs), expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sequence_has_the_same_bits_in_any_batch(dtype: torch.dtype) -> None:
    """Alone with its own bounds, alone with larger ones, and among others; whatever the number of threads."""
    (query, cache, table, starts, lengths), kwargs = arguments(latent("mixed", MIXED, heads=5, batch_invariant=True), dtype)
    out, lse = attention(query, cache, table, starts, lengths, **kwargs)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert all(map(torch.equal, attention(query, cache, table, starts, lengths, **kwargs), (out, lse)))
    finally:
        torch.set_num_threads(before)
    for number, (queries, keys) in enumerate(MIXED):
        begin = int(starts[number])
        own = query[begin : begin + queries], cache, table[number : number + 1], torch.tensor([0, queries], dtype=torch.int32)
        for bounds in ((queries, keys), (queries + 3, 4 * keys + 40)):
            given = kwargs | {"max_query_length": bounds[0], "max_key_length": bounds[1]}
            own_out, own_lse = attention(*own, lengths[number : number + 1], **given)
            assert torch.equal(own_out, out[begin : begin + queries]), (number, bounds)
            assert torch.equal(own_lse, lse[:, begin : begin + queries]), (number, bounds)


GUARDED = """
import torch, kernelpack
from tests.ops.test_mla_decode import run_guarded
assert kernelpack.__version__
torch.set_num_threads(1)
run_guarded()
print("no access outside of a tensor")
"""


def run_guarded() -> None:
    """Calls the op with every tensor against forbidden pages, after it and before it."""
    for batch in CASES:
        for dtype in DTYPES:
            args, kwargs = arguments(batch, dtype)
            given = dict(zip(NAMES, args, strict=True)) | kwargs
            for at_end in (True, False):
                print(batch.name, dtype, at_end, flush=True)
                call_guarded(torch.ops.kernelpack.mla_decode, given, ("out", "lse"), at_end=at_end)


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_no_access_outside_of_a_tensor(level: str) -> None:
    done = run_at(level, "-c", GUARDED)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    assert done.stdout.endswith("no access outside of a tensor\n")


def call(**changes: Any) -> Call:
    """A call that works, with some arguments changed: by a value, or by a function of the one that works."""
    args, kwargs = arguments(latent("bad", ((1, 40), (5, 20))), torch.float32)
    given: dict[str, Any] = dict(zip(NAMES, args, strict=True)) | kwargs
    for name, change in changes.items():
        given[name] = change(given[name]) if callable(change) else change
    return tuple(given.pop(name) for name in NAMES), given


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def one_row(x: torch.Tensor) -> torch.Tensor:
    return x[:1]


BAD: list[tuple[dict[str, Any | Callable[[torch.Tensor], torch.Tensor]], str]] = [
    ({"query": lambda x: x.double()}, r"query has dtype float64, built are: float32, float16, bfloat16"),
    ({"query": lambda x: x[0]}, r"query must have 3 dimensions \(tokens, heads, 576\), its shape is \(16, 576\)"),
    ({"query": lambda x: x[..., ::2]}, r"last dimension of query must be contiguous, its stride is 2\n  to fix: .*contiguous"),
    ({"query": lambda x: x[..., :512]}, r"query has rows of 512 elements, expected 576: 512 of the latent, 64 of rope"),
    ({"cache": lambda x: x[..., :512]}, r"cache has rows of 512 elements, expected 576: 512 of the latent, 64 of rope"),
    ({"cache": lambda x: x[:, :, None]}, r"cache must have 3 dimensions \(blocks, block size, 576\), its shape is \(7, 16, 1, 576\)"),
    ({"cache": lambda x: x.half()}, r"cache has dtype float16, query has float32"),
    ({"cache": lambda x: x[:, :8]}, r"cache has blocks of 8 keys, expected a power of two from 16 on"),
    ({"block_table": lambda x: x.long()}, r"block_table has dtype int64, built are: int32"),
    ({"block_table": one_row}, r"block_table has shape \(1, 3\), expected \(2, columns\): a row for each sequence"),
    ({"block_table": lambda x: x.repeat_interleave(2, 1)[:, ::2]}, r"last dimension of block_table must be contiguous, its stride is 2"),
    ({"query_starts": numbers(0, 1)}, r"query_starts has shape \(2,\), expected \(3,\): one for each sequence of key_lengths, and the"),
    ({"query_starts": numbers(0, 0, 1, 1, 6, 6)[::2]}, r"query_starts must be contiguous, its stride is 2"),
    ({"key_lengths": lambda x: x[:, None]}, r"key_lengths has shape \(2, 1\), expected \(2,\): one for each sequence"),
    ({"key_lengths": lambda x: x.to("meta")}, r"key_lengths is on meta, query is on cpu"),
    ({"max_query_length": -1}, r"max_query_length is -1, expected 0 or more"),
    ({"max_key_length": -1}, r"max_key_length is -1, expected 0"),
    ({"max_key_length": 2**31}, r"max_key_length is 2147483648, expected 0"),
    # what tensors hold is looked at by kernels
    ({"query_starts": numbers(0, 1, 9)}, r"query_starts points outside of query's tokens, or descends"),
    ({"max_query_length": 4}, r"query_starts has a sequence of more than max_query_length tokens"),
    ({"max_key_length": 39}, r"key_lengths has a length above max_key_length"),
    ({"key_lengths": numbers(49, 20), "max_key_length": 64}, r"key_lengths has a length for which block_table has too few columns"),
    ({"block_table": lambda x: x + 7}, r"block_table points outside of the cache"),
    ({"block_table": lambda x: x - 7}, r"block_table points outside of the cache"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(BAD)))
def test_refused_by_name(index: int) -> None:
    changes, said = BAD[index]
    args, kwargs = call(**changes)
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        attention(*args, **kwargs)
    text = str(raised.value)
    assert re.search(said, text, re.DOTALL), text
    assert "mla_decode" in text or "mla_part" in text, text


def test_torch_checks_the_op() -> None:
    args, kwargs = call()
    torch.library.opcheck(torch.ops.kernelpack.mla_decode.default, args, kwargs)


def test_compiled_models_take_every_batch() -> None:
    def step(*args: torch.Tensor) -> torch.Tensor:
        return attention(*args, scale=0.07, max_query_length=64, max_key_length=256)[0] * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in (((1, 40), (5, 20)), ((1, 30), (2, 99), (64, 200))):
        args, _ = arguments(latent("compiled", lengths), torch.float32)
        torch.testing.assert_close(compiled(*args), step(*args))
