"""paged_attention and merge_attention_states: as accurate as torch, the same bits in any batch, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from tests.ops.far_cases import STEP
from tests.ops.grid import module_of
from tests.ops.guard_pages import call_guarded
from tests.ops.levels import EACH_LEVEL, run_at
from tests.ops.paged_batches import CASES, DTYPES, MIXED, Batch, compare

Call = tuple[tuple[torch.Tensor, ...], dict[str, Any]]
NAMES = ("query", "key_cache", "value_cache", "block_table", "query_starts", "key_lengths")


def attention(*args: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.ops.kernelpack.paged_attention(*args, **kwargs)
    return out, lse


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_errors_are_at_most_twice_those_of_torch(level: str) -> None:
    done = run_at(level, "-m", "tests.ops.paged_batches")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{sum(len(batch.dtypes) for batch in CASES)} cases, 0 inaccurate" in done.stdout


def test_a_key_too_many_would_be_found() -> None:
    args, kwargs = Batch("mixed", MIXED).arguments(torch.bfloat16)
    got = attention(*args, **kwargs, window=64)
    assert not compare("window", got, args, kwargs | {"window": 64})
    assert "out: error" in compare("window", got, args, kwargs | {"window": 65})
    assert "lse: error" in compare("window", got, args, kwargs | {"window": 65})


@pytest.mark.parametrize("name", ["mixed", "mixed, all at once", "drafts"])
def test_development_run_agrees_with_the_built_op(name: str) -> None:
    args, kwargs = next(case for case in CASES if case.name == name).arguments(torch.bfloat16)
    for ours, developed in zip(
        attention(*args, **kwargs), module_of("paged_attention").paged_attention(*args, **kwargs), strict=True
    ):
        assert ours.stride() == developed.stride()
        torch.testing.assert_close(ours, developed)


def test_strides_are_followed() -> None:
    """Queries cut out of a projection, and a cache that holds keys beside values."""
    args, kwargs = Batch("mixed", MIXED).arguments(torch.float32)
    query, key, value, *rest = args
    expected = attention(*args, **kwargs)
    wide = torch.randn(query.shape[0], 3 * query.shape[1], query.shape[2])[:, 5 : 5 + query.shape[1]]
    both = torch.randn(2, key.shape[0], key.shape[2], key.shape[1], key.shape[3]).transpose(2, 3)
    wide.copy_(query)
    both[0], both[1] = key, value
    for ours, other in zip(expected, attention(wide, both[0], both[1], *rest, **kwargs), strict=True):
        assert torch.equal(ours, other)


def test_tokens_of_no_sequence_are_left_alone() -> None:
    """As in a captured graph, whose batch has room for more."""
    args, kwargs = Batch("mixed", MIXED).arguments(torch.float32)
    query, *rest = args
    padded = torch.cat((query, torch.full((7, *query.shape[1:]), float("nan"))))
    expected = attention(*args, **kwargs)
    out, lse = attention(padded, *rest, **kwargs)
    assert torch.equal(out[: len(query)], expected[0])
    assert torch.equal(lse[:, : len(query)], expected[1])


# -- batch invariance -----------------------------------------------------------------------------------------------------------


def alone(args: tuple[torch.Tensor, ...], number: int) -> tuple[torch.Tensor, ...]:
    """Returns the arguments of a call with one sequence of a batch."""
    query, key, value, table, starts, lengths = args
    begin, end = starts[number : number + 2].tolist()
    own = torch.tensor([0, end - begin], dtype=torch.int32)
    return query[begin:end], key, value, table[number : number + 1], own, lengths[number : number + 1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("options", [{}, {"window": 60, "softcap": 3.0}], ids=["plain", "window"])
def test_a_sequence_has_the_same_bits_in_any_batch(dtype: torch.dtype, group: int, options: dict[str, Any]) -> None:
    """Alone with its own bounds, alone with larger ones, and among others."""
    batch = Batch("mixed", MIXED, heads=2 * group, sinks=True, options=options)
    args, kwargs = batch.arguments(dtype)
    out, lse = attention(*args, **kwargs, batch_invariant=True)
    starts = args[4].tolist()
    for number, (queries, keys) in enumerate(MIXED):
        for bounds in ((queries, keys), (queries + 3, 4 * keys + 40), (4096, 70_000)):
            given = kwargs | {"max_query_length": bounds[0], "max_key_length": bounds[1]}
            own_out, own_lse = attention(*alone(args, number), **given, batch_invariant=True)
            assert torch.equal(own_out, out[starts[number] : starts[number + 1]]), (number, bounds)
            assert torch.equal(own_lse, lse[:, starts[number] : starts[number + 1]]), (number, bounds)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    args, kwargs = Batch("mixed", MIXED).arguments(torch.float32)
    expected = attention(*args, **kwargs)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert all(map(torch.equal, attention(*args, **kwargs), expected))
    finally:
        torch.set_num_threads(before)


# -- memory ---------------------------------------------------------------------------------------------------------------------

GUARDED = """
import torch, kernelpack
from tests.ops.test_paged_attention import run_guarded
assert kernelpack.__version__
torch.set_num_threads(1)
run_guarded()
print("no access outside of a tensor")
"""


def run_guarded() -> None:
    """Calls the op with every tensor against forbidden pages, after it and before it."""
    for batch in CASES:
        for dtype in batch.dtypes:
            args, kwargs = batch.arguments(dtype)
            given = dict(zip(NAMES, args, strict=True)) | kwargs
            for at_end in (True, False):
                print(batch.name, dtype, at_end, flush=True)
                call_guarded(torch.ops.kernelpack.paged_attention, given, ("out", "lse"), at_end=at_end)


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_no_access_outside_of_a_tensor(level: str) -> None:
    done = run_at(level, "-c", GUARDED)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    assert done.stdout.endswith("no access outside of a tensor\n")


def test_caches_beyond_2_to_the_31_elements() -> None:
    """Three blocks that lie 4 GiB apart, in memory that is never touched between them."""
    shape, reach = (3, 16, 2, 64), 2 * STEP + 16 * 2 * 64
    flat = torch.empty(reach, dtype=torch.bfloat16)
    cache = flat.as_strided(shape, (STEP, 128, 64, 1))
    cache.copy_(torch.randn(shape))
    query = torch.randn(21, 6, 64).bfloat16()
    table = torch.tensor([[2, 0, 1], [1, 2, 0]], dtype=torch.int32)
    starts, lengths = torch.tensor([0, 1, 21], dtype=torch.int32), torch.tensor([45, 33], dtype=torch.int32)
    kwargs = {"max_query_length": 20, "max_key_length": 45}
    got = attention(query, cache, cache, table, starts, lengths, **kwargs)
    near = cache.clone(memory_format=torch.contiguous_format)
    assert not compare("far", got, (query, near, near, table, starts, lengths), kwargs)


# -- what is refused ------------------------------------------------------------------------------------------------------------


def call(**changes: Any) -> Call:
    """A call that works, with some arguments changed: by a value, or by a function of the one that works."""
    args, kwargs = Batch("bad", ((1, 40), (5, 20))).arguments(torch.float32)
    given: dict[str, Any] = dict(zip(NAMES, args, strict=True)) | kwargs
    for name, change in changes.items():
        given[name] = change(given[name]) if callable(change) else change
    return tuple(given.pop(name) for name in NAMES), given


def numbers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def eight(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"query": lambda x: x.double()}, r"query has dtype float64, built are: float32, float16, bfloat16"),
    ({"query": lambda x: x[0]}, r"query must have 3 dimensions \(tokens, heads, head size\), its shape is \(6, 64\)"),
    ({"query": lambda x: x[..., ::2]}, r"last dimension of query must be contiguous, its stride is 2\n  to fix: .*contiguous"),
    ({"query": lambda x: x[..., :48]}, r"key_cache has head size 64, query has 48"),
    ({"query": lambda x: x[:, :5]}, r"query has 5 heads, which is no multiple of key_cache's 2"),
    ({"key_cache": lambda x: x.half()}, r"key_cache has dtype float16, built are: float32, float8_e4m3fn"),
    ({"key_cache": eight, "value_cache": eight}, r"key_cache has 8 bits, which are built for queries in bfloat16"),
    ({"key_cache": eight}, r"value_cache has dtype float32, key_cache has float8_e4m3fn"),
    ({"key_cache": lambda x: x[0]}, r"key_cache must have 4 dimensions \(blocks, block size, kv heads, head size\)"),
    ({"key_cache": lambda x: x[:-1]}, r"value_cache has shape \(7, 16, 2, 64\), key_cache has \(6, 16, 2, 64\): all but the head"),
    ({"value_cache": lambda x: x[:, :, :1]}, r"value_cache has shape .*, key_cache has .*: all but the head size must be equal"),
    ({"value_cache": lambda x: x.repeat(1, 1, 1, 5)}, r"value_cache has head size 320, at most 256 is supported"),
    ({"key_cache": lambda x: x[:, :8], "value_cache": lambda x: x[:, :8]}, r"blocks of 8 keys, expected a power of two from 16 on"),
    ({"key_cache": lambda x: x.repeat(1, 3, 1, 1), "value_cache": lambda x: x.repeat(1, 3, 1, 1)}, r"blocks of 48 keys, expected a"),
    ({"block_table": lambda x: x.long()}, r"block_table has dtype int64, built are: int32"),
    ({"block_table": lambda x: x[:1]}, r"block_table has shape \(1, 3\), expected \(2, columns\): a row for each sequence"),
    ({"block_table": lambda x: x.repeat_interleave(2, 1)[:, ::2]}, r"last dimension of block_table must be contiguous, its stride is 2"),
    ({"query_starts": numbers(0, 1)}, r"query_starts has shape \(2,\), expected \(3,\): one for each sequence of key_lengths, and the"),
    ({"query_starts": numbers(0, 0, 1, 1, 6, 6)[::2]}, r"query_starts must be contiguous, its stride is 2"),
    ({"key_lengths": lambda x: x[:, None]}, r"key_lengths has shape \(2, 1\), expected \(2,\): one for each sequence"),
    ({"key_lengths": lambda x: x.to("meta")}, r"key_lengths is on meta, query is on cpu"),
    ({"max_query_length": -1}, r"max_query_length is -1, expected 0 or more"),
    ({"max_key_length": -1}, r"max_key_length is -1, expected 0"),
    ({"max_key_length": 2**31}, r"max_key_length is 2147483648, expected 0"),
    ({"window": 0}, r"window is 0, expected 1"),
    ({"window": 4, "causal": False}, r"window is given without causal=True"),
    ({"softcap": 0.0}, r"softcap is 0.*, expected a positive number"),
    ({"softcap": float("nan")}, r"softcap is -?nan, expected a positive number"),
    ({"sinks": torch.zeros(5)}, r"sinks has shape \(5,\), expected \(6,\): one for each head of query"),
    ({"sinks": torch.zeros(6).half()}, r"sinks has dtype float16, built are"),
    ({"key_scale": torch.ones(3)}, r"key_scale has shape \(3,\), expected \(1,\) or \(2,\), one for each key head"),
    ({"value_scale": torch.ones(1, 2)}, r"value_scale has shape \(1, 2\), expected \(1,\) or \(2,\)"),
    # what tensors hold is looked at by kernels
    ({"query_starts": numbers(0, 1, 9)}, r"query_starts points outside of query's tokens, or descends"),
    ({"query_starts": numbers(-1, 1, 6)}, r"query_starts points outside of query's tokens, or descends"),
    ({"query_starts": numbers(0, 4, 2)}, r"query_starts points outside of query's tokens, or descends"),
    ({"max_query_length": 4}, r"query_starts has a sequence of more than max_query_length tokens"),
    ({"max_key_length": 39}, r"key_lengths has a length above max_key_length"),
    ({"key_lengths": numbers(40, -1)}, r"key_lengths has a length below 0"),
    ({"key_lengths": numbers(49, 20), "max_key_length": 64}, r"key_lengths has a length for which block_table has too few columns"),
    ({"block_table": lambda x: x + 7}, r"block_table points outside of the cache"),
    ({"block_table": lambda x: x - 7}, r"block_table points outside of the cache"),
    ({"key_lengths": numbers(40, 40)}, r"block_table points outside of the cache"),  # where no key was before
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(BAD)))
def test_refused_by_name(index: int) -> None:
    changes, said = BAD[index]
    args, kwargs = call(**changes)
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        attention(*args, **kwargs)
    text = str(raised.value)
    assert re.search(said, text, re.DOTALL), text
    assert "paged_attention" in text or "paged_part" in text, text
    args, kwargs = call()
    assert not compare("works", attention(*args, **kwargs), args, kwargs)


def test_scales_that_are_no_numbers_give_none() -> None:
    for name in ("key_scale", "value_scale"):
        args, kwargs = call(**{name: torch.tensor([1.0, float("nan")])})
        out, _ = attention(*args, **kwargs)
        assert out[:, 3:].isnan().all()
        assert not out[:, :3].isnan().any()


def test_nan_reaches_the_queries_that_see_it() -> None:
    args, kwargs = call()
    _, key, _, table, *_ = args
    key[table[0, 0], 5, 0, 3] = float("nan")
    out, lse = attention(*args, **kwargs)
    assert out[0, :3].isnan().all()
    assert lse[:3, 0].isnan().all()
    assert not out[0, 3:].isnan().any()
    assert not out[1:].isnan().any()


# -- merge_attention_states -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [40, 64, 128])
def test_two_parts_of_the_keys_merge_into_all(dtype: torch.dtype, size: int) -> None:
    """A prefix that all sequences share, and the rest; the sink is part of one."""
    prefix = Batch("prefix", ((1, 48), (40, 48), (3, 48)), size=size, sinks=True, options={"causal": False})
    whole = Batch("whole", ((1, 60), (40, 100), (3, 51)), size=size, sinks=True)
    args, kwargs = whole.arguments(dtype)
    query, key, value, table, starts, lengths = args
    sinks = kwargs.pop("sinks")
    first = attention(
        query, key, value, table, starts, numbers(48, 48, 48), max_query_length=40, max_key_length=48, causal=False, sinks=sinks
    )
    second = attention(query, key, value, table[:, 3:].contiguous(), starts, lengths - 48, **kwargs)
    got = torch.ops.kernelpack.merge_attention_states(*first, *second)
    assert prefix.lengths[1][0] == 40
    expected = attention(*args, **kwargs, sinks=sinks)
    tolerance = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(got[0], expected[0], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(got[1], expected[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_merged_states_are_those_of_the_reference(dtype: torch.dtype) -> None:
    reference = module_of("merge_attention_states").reference
    for tokens, heads, size in ((1, 1, 1), (7, 3, 64), (33, 9, 130), (0, 4, 64), (5, 0, 8), (5, 4, 0)):
        a, b = (torch.randn(tokens, heads, size).to(dtype) for _ in range(2))
        lse_a, lse_b = (torch.randn(heads, tokens) * 20 for _ in range(2))
        if tokens > 3:
            lse_a[..., 0] = -float("inf")
            lse_b[..., 1] = -float("inf")
            lse_a[..., 2] = lse_b[..., 2] = -float("inf")
            a[0], b[1], a[2], b[2] = float("nan"), float("inf"), 0.0, 0.0
        got = torch.ops.kernelpack.merge_attention_states(a, lse_a, b, lse_b)
        if tokens > 3:
            assert torch.equal(got[0][:2], torch.stack((b[0], a[1])))
            assert not got[0][2].any()
            a[0], b[1] = 0.0, 0.0
        exact = reference(a.double(), lse_a, b.double(), lse_b)
        torch.testing.assert_close(got[0].double(), exact[0], atol=1e-6, rtol=torch.finfo(dtype).eps)
        torch.testing.assert_close(got[1].double(), exact[1], atol=1e-5, rtol=1e-6)
        assert got[0].dtype == dtype


def test_states_that_do_not_fit_are_refused() -> None:
    out, lse = torch.ones(5, 2, 8), torch.ones(2, 5)
    for args, said in (
        ((out[0], lse, out, lse), r"out_a must have 3 dimensions"),
        ((out, lse, out[:4], lse), r"out_b has shape \(4, 2, 8\), out_a has \(5, 2, 8\)"),
        ((out, lse, out.half(), lse), r"out_b has dtype float16"),
        ((out, lse.t(), out, lse), r"lse_a has shape \(5, 2\), expected \(2, 5\)"),
        ((out, lse, out, torch.ones(5, 2).t()), r"lse_b must be contiguous.*\n  to fix"),
        ((out[..., ::2], lse, out[..., ::2], lse), r"last dimension of out_a must be contiguous"),
    ):
        with pytest.raises(RuntimeError, match=said):
            torch.ops.kernelpack.merge_attention_states(*args)


# -- torch's modes ----------------------------------------------------------------------------------------------------------------


def test_torch_checks_both_ops() -> None:
    args, kwargs = call()
    torch.library.opcheck(torch.ops.kernelpack.paged_attention.default, args, kwargs)
    states = attention(*args, **kwargs)
    torch.library.opcheck(torch.ops.kernelpack.merge_attention_states.default, (*states, *states))


def test_compiled_models_take_every_batch() -> None:
    def step(*args: torch.Tensor) -> torch.Tensor:
        first, log = torch.ops.kernelpack.paged_attention(*args, max_query_length=64, max_key_length=256)
        return torch.ops.kernelpack.merge_attention_states(first, log, first, log)[0] * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in (((1, 40), (5, 20)), ((1, 30), (2, 99), (64, 200))):
        args, _ = Batch("compiled", lengths).arguments(torch.float32)
        torch.testing.assert_close(compiled(*args), step(*args))


def test_lengths_stay_free_in_an_exported_program() -> None:
    """Sizes from which a program takes the longest query and the longest key need not be those of the example."""

    class Attention(torch.nn.Module):
        def forward(self, query: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, starts: torch.Tensor, lengths: torch.Tensor):  # fmt: skip
            longest, reach = query.shape[0], table.shape[1] * cache.shape[1]
            return attention(
                query, cache, cache, table, starts, lengths, max_query_length=longest, max_key_length=reach
            )[0]  # fmt: skip

    def given(queries: int, keys: int) -> tuple[torch.Tensor, ...]:
        pages = -(-keys // 16)
        table = torch.arange(pages, dtype=torch.int32)[None]
        return (
            torch.randn(queries, 2, 64), torch.randn(pages, 16, 2, 64), table, torch.tensor([0, queries], dtype=torch.int32),
            torch.tensor([keys], dtype=torch.int32),
        )  # fmt: skip

    count, pages = torch.export.Dim("count", min=1, max=4096), torch.export.Dim("pages", min=1, max=4096)
    free = ({0: count}, {0: pages}, {1: pages}, {}, {})
    exported = torch.export.export(Attention(), given(5, 40), dynamic_shapes=free).module()
    for queries, keys in ((1, 1), (1, 700), (33, 50), (70, 70)):
        args = given(queries, keys)
        torch.testing.assert_close(exported(*args), Attention()(*args), rtol=0, atol=0)
