"""packed_attention: paged_attention's results for sequences that lie one after the other, and what it refuses. Its kernels are those of
paged_attention, whose accuracy, memory and batches have tests of their own."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from tests.ops.grid import module_of
from tests.ops.guard_pages import call_guarded
from tests.ops.paged_batches import CASES, DTYPES, MIXED, Batch

Call = tuple[tuple[torch.Tensor, ...], dict[str, Any]]
NAMES = ("query", "key", "value", "query_starts", "key_starts", "key_lengths")
CHOSEN = [batch for batch in CASES if not batch.narrow and not batch.scales]
"""Batches that it has a call for."""


def attention(*args: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.ops.kernelpack.packed_attention(*args, **kwargs)
    return out, lse


def packed(batch: Batch, dtype: torch.dtype) -> tuple[Call, Call]:
    """Returns the call of paged_attention that a batch is, and that of packed_attention with the same keys: those of the last sequence first,
    with some rows between two sequences that are NaN."""
    (query, key_cache, value_cache, table, starts, lengths), keywords = batch.arguments(dtype)
    rows: list[tuple[torch.Tensor, torch.Tensor]] = []
    begins, count = [0] * len(lengths), 0
    for number in reversed(range(len(lengths))):
        keys = int(lengths[number])
        blocks = table[number, : -(-keys // batch.block)].long()
        begins[number] = count
        rows.append((key_cache[blocks].flatten(0, 1)[:keys], value_cache[blocks].flatten(0, 1)[:keys]))
        rows.append((torch.full_like(key_cache[0, :3], float("nan")), torch.full_like(value_cache[0, :3], float("nan"))))
        count += keys + 3
    key, value = (
        torch.cat([pair[i] for pair in rows]) if rows else cache[:0, 0] for i, cache in enumerate((key_cache, value_cache))
    )
    call = (query, key, value, starts, torch.tensor(begins, dtype=torch.int32), lengths), keywords
    return ((query, key_cache, value_cache, table, starts, lengths), keywords), call


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_those_of_pages_bit_for_bit(dtype: torch.dtype) -> None:
    assert len(CHOSEN) > 25
    for batch in CHOSEN if dtype == torch.bfloat16 else CHOSEN[::7]:
        (paged, keywords), (args, _) = packed(batch, dtype)
        right = torch.ops.kernelpack.paged_attention(*paged, **keywords)
        assert all(map(torch.equal, attention(*args, **keywords), right)), batch.name


def test_its_reference_is_that_of_pages() -> None:
    (paged, keywords), (args, _) = packed(Batch("mixed", MIXED, sinks=True, options={"window": 60}), torch.float64)
    keywords = {name: x.double() if isinstance(x, torch.Tensor) else x for name, x in keywords.items()}
    ours, right = module_of("packed_attention").reference, module_of("paged_attention").reference
    assert all(map(torch.equal, ours(*args, **keywords), right(*paged, **keywords)))


def test_it_computes_what_torch_does_for_sequences_of_one_length() -> None:
    query, key, value = torch.randn(3, 4, 50, 64), *torch.randn(2, 3, 2, 50, 64)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    flat = [x.transpose(1, 2).flatten(0, 1).contiguous() for x in (query, key, value)]
    cumulative = torch.arange(0, 151, 50, dtype=torch.int32)
    bounds = {"max_query_length": 50, "max_key_length": 50}
    out, _ = attention(*flat, cumulative, cumulative[:-1], cumulative.diff(), **bounds)
    torch.testing.assert_close(out.view(3, 50, 4, 64).transpose(1, 2), expected)


def test_development_run_agrees_with_the_built_op() -> None:
    _, (args, keywords) = packed(Batch("mixed", MIXED), torch.bfloat16)
    developed = module_of("packed_attention").packed_attention(*args, **keywords)
    for ours, other in zip(attention(*args, **keywords), developed, strict=True):
        assert ours.stride() == other.stride()
        torch.testing.assert_close(ours, other)


def test_strides_are_followed() -> None:
    """Queries, keys and values of one projection."""
    lengths = torch.tensor([70, 1, 33], dtype=torch.int32)
    starts = torch.tensor([0, 70, 71, 104], dtype=torch.int32)
    both = torch.randn(104, 8, 64)
    query, key, value = both[:, :4], both[:, 4:6], both[:, 6:]
    bounds = {"max_query_length": 70, "max_key_length": 70}
    expected = attention(*(x.contiguous() for x in (query, key, value)), starts, starts[:-1], lengths, **bounds)
    assert all(map(torch.equal, attention(query, key, value, starts, starts[:-1], lengths, **bounds), expected))


def test_no_access_outside_of_a_tensor() -> None:
    for batch in CHOSEN[:12]:
        _, (args, keywords) = packed(batch, torch.bfloat16)
        given = dict(zip(NAMES, args, strict=True)) | keywords
        for at_end in (True, False):
            call_guarded(torch.ops.kernelpack.packed_attention, given, ("out", "lse"), at_end=at_end)


def call(**changes: Any) -> Call:
    """A call that works, with some arguments changed: by a value, or by a function of the one that works."""
    _, (args, keywords) = packed(Batch("bad", ((1, 40), (5, 20))), torch.float32)
    given: dict[str, Any] = dict(zip(NAMES, args, strict=True)) | keywords
    for name, change in changes.items():
        given[name] = change(given[name]) if callable(change) else change
    return tuple(given.pop(name) for name in NAMES), given


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"query": lambda x: x.double()}, r"query has dtype float64, built are: float32, float16, bfloat16"),
    ({"query": lambda x: x[0]}, r"query must have 3 dimensions \(tokens, heads, head size\), its shape is \(6, 64\)"),
    ({"query": lambda x: x[..., :48]}, r"key has head size 64, query has 48"),
    ({"query": lambda x: x[:, :5]}, r"query has 5 heads, which is no multiple of key's 2"),
    ({"key": lambda x: x.half()}, r"key has dtype float16, query has float32"),
    ({"key": lambda x: x[None]}, r"key must have 3 dimensions \(keys, kv heads, head size\)"),
    ({"key": lambda x: x[..., ::2]}, r"last dimension of key must be contiguous, its stride is 2"),
    ({"value": lambda x: x[:-1]}, r"value has shape \(65, 2, 64\), key has \(66, 2, 64\): all but the head size must be equal"),
    ({"value": lambda x: x.repeat(1, 1, 5)}, r"value has head size 320, at most 256 is supported"),
    ({"key_starts": lambda x: x.long()}, r"key_starts has dtype int64, built are: int32"),
    ({"key_starts": numbers(0)}, r"key_starts has shape \(1,\), expected \(2,\): one for each sequence of key_lengths"),
    ({"query_starts": numbers(0, 1)}, r"query_starts has shape \(2,\), expected \(3,\): one for each sequence of key_lengths, and the"),
    ({"max_key_length": 2**30}, r"max_key_length is 1073741824, expected 0"),
    ({"window": 4, "causal": False}, r"window is given without causal=True"),
    ({"sinks": torch.zeros(5)}, r"sinks has shape \(5,\), expected \(6,\): one for each head of query"),
    # what tensors hold is looked at by kernels
    ({"key_starts": numbers(0, 47)}, r"key_starts and key_lengths point outside of the keys"),
    ({"key_starts": numbers(0, 66)}, r"key_starts and key_lengths point outside of the keys"),
    ({"key_starts": numbers(0, 2**31 - 1)}, r"key_starts and key_lengths point outside of the keys"),
    ({"key_starts": numbers(0, -1)}, r"key_starts and key_lengths point outside of the keys"),
    ({"max_key_length": 39}, r"key_lengths has a length above max_key_length"),
    ({"query_starts": numbers(0, 1, 9)}, r"query_starts points outside of query's tokens, or descends"),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(BAD)))
def test_refused_by_name(index: int) -> None:
    changes, said = BAD[index]
    args, keywords = call(**changes)
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        attention(*args, **keywords)
    text = str(raised.value)
    assert re.search(said, text, re.DOTALL), text
    assert "packed_attention" in text or "paged_part" in text, text


def test_torch_checks_the_op() -> None:
    args, keywords = call()
    torch.library.opcheck(torch.ops.kernelpack.packed_attention.default, args, keywords)


def test_compiled_models_take_every_batch() -> None:
    def step(*args: torch.Tensor) -> torch.Tensor:
        return attention(*args, max_query_length=64, max_key_length=256)[0] * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in (((1, 40), (5, 20)), ((1, 30), (2, 99), (64, 200))):
        _, (args, _) = packed(Batch("compiled", lengths), torch.float32)
        torch.testing.assert_close(compiled(*args), step(*args))
