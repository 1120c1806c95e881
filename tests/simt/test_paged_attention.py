"""paged_attention and merge_attention_states as they are compiled for GPUs: nothing is reported, and they are as accurate as torch."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import pytest
import torch

from kernelpack.errors import KernelpackError
from ops import _paged_kernels
from tests.ops.grid import module_of
from tests.ops.paged_batches import DTYPES, Batch, compare
from tests.ops.test_packed_attention import packed
from tests.simt import emulated_ops
from tests.simt.emulated_ops import call
from tests.simt.fault_cases import FaultCase
from tests.simt.test_ops import TARGETS
from tests.simt.test_planted_faults import survivors

MIXED = ((1, 150), (1, 17), (0, 4), (1, 0), (21, 100), (2, 70))
BATCHES = (
    Batch("mixed", MIXED),
    Batch("mixed, all at once", MIXED, sinks=True, scales=2, block=32, options={"softcap": 4.0, "window": 60}),
    Batch("mixed, head size 128", MIXED[::-1], heads=4, kv_heads=1, size=128, block=64),
    Batch("prefill", ((70, 140), (3, 3)), size=80, heads=4),
    Batch("chunk, many parts", ((70, 560), (2, 30)), size=80, value_size=64),
    Batch("decode, many parts", ((1, 200), (1, 65), (1, 1)), heads=8, kv_heads=1),
)


def emulated(
    target: str, op: str, args: Any, kwargs: Any, aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[Any]]:
    """Runs an op with the kernels for aligned tensors, or with those that assume nothing; returns its launches, too."""
    monkeypatch.setattr(emulated_ops, "_is_aligned", lambda *_: aligned)
    return call(target, getattr(module_of(op), op), args, kwargs)


OFTEN = (("cuda:sm_90a", torch.bfloat16, True), ("cuda:sm_80", torch.float16, False))
"""What every run of the tests emulates; the rest is slow."""


@pytest.mark.parametrize(
    ("target", "dtype", "aligned"),
    [
        pytest.param(*one, marks=() if one in OFTEN else pytest.mark.slow)
        for one in itertools.product(TARGETS, DTYPES, (True, False))
    ],
)
def test_batches_compute_what_torch_does(
    target: str, dtype: torch.dtype, aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in BATCHES:
        args, kwargs = batch.arguments(dtype)
        got, runs = emulated(target, "paged_attention", args, kwargs, aligned, monkeypatch)
        assert not compare(batch.name, got, args, kwargs)
        longest = max(queries for queries, _ in batch.lengths) * batch.heads // batch.kv_heads
        assert len(runs) == 2 + (longest > 16)  # parts and their sums; blocks of rows only where there are many


HARMLESS = {
    (
        "barrier",
        "# the lane that arrives need not be the one that wrote",
    ): "elect.sync elects the first lane here, which writes",
    ("barrier", "hopper.named_barrier_wait(copy, 256)"): "it says which role issues its products first: a matter of speed",
    (
        "fence",
        "hopper.local_store(q_tile, means.to(dtype))",
    ): "threads read the tile; queries get a fence of their own",
}
"""What may be missing in kernels by roles, and why nothing shows it."""


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 128, 256])
def test_planted_faults_are_reported(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences without keys let the loading role run ahead, as far as the ring of tasks goes: of many, for four programs, whose first are
    none where the last sequences have few rows."""
    monkeypatch.setattr(emulated_ops, "_is_aligned", lambda *_: True)
    monkeypatch.setattr(_paged_kernels, "BLOCK_PROGRAMS", 4)
    without, long = ((40, 40), *((40, 0),) * 8), ((190, 460), (5, 40), (33, 20))
    cases = (
        (without * 2, {}),
        ((*without * 2, *((2, 9),) * 3), {}),
        (long, {}),
        (((70, 300), (21, 21)), {"softcap": 5.0, "window": 60}),
    )
    calls = tuple(
        functools.partial(Batch(f"faults {size}", lengths, heads=4, size=size, options=options).arguments, torch.bfloat16)
        for lengths, options in cases
    )
    found = survivors(FaultCase("paged_attention", f"roles-{size}", calls), "cuda:sm_90a")
    by_roles = [(kind, text.strip()) for kind, text, place in found if re.match("_(paged|mha)_roles.py", place)]
    assert {(kind, next((known for _, known in HARMLESS if known in text), text)) for kind, text in by_roles} <= set(HARMLESS)


def test_packed_keys_give_the_bits_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of a sequence begin at any row there, and NaN follows them at once."""
    pages, rows = packed(Batch("prefill", ((70, 140), (40, 40), (25, 21)), heads=4), torch.bfloat16)
    right, _ = emulated("cuda:sm_90a", "paged_attention", *pages, True, monkeypatch)
    got, _ = emulated("cuda:sm_90a", "packed_attention", *rows, True, monkeypatch)
    assert all(map(torch.equal, got, right))


@pytest.mark.parametrize("target", TARGETS)
def test_a_sequence_has_the_same_bits_in_any_batch(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch("mixed", ((1, 530), (1, 17), (9, 40)), sinks=True)
    args, kwargs = batch.arguments(torch.bfloat16)
    query, key, value, table, _, lengths = args
    whole, _ = emulated(target, "paged_attention", args, kwargs | {"batch_invariant": True}, True, monkeypatch)
    begin = 0
    for number, (queries, keys) in enumerate(batch.lengths):
        own = query[begin : begin + queries], key, value, table[number : number + 1]
        starts = torch.tensor([0, queries], dtype=torch.int32)
        bounds = kwargs | {"max_query_length": queries, "max_key_length": keys, "batch_invariant": True}
        got, _ = emulated(target, "paged_attention", (*own, starts, lengths[number : number + 1]), bounds, True, monkeypatch)
        assert torch.equal(got[0], whole[0][begin : begin + queries])
        assert torch.equal(got[1], whole[1][:, begin : begin + queries])
        begin += queries


def test_a_debug_run_finds_blocks_outside_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelpack

    monkeypatch.setattr(kernelpack.knobs.runtime, "debug", True)
    args, kwargs = Batch("mixed", MIXED).arguments(torch.bfloat16)
    got, _ = emulated("cuda:sm_90a", "paged_attention", args, kwargs, True, monkeypatch)
    assert not compare("checked", got, args, kwargs)
    args[3][0, 1] = args[1].shape[0]
    with pytest.raises(KernelpackError, match="block_table points outside of the cache"):
        emulated("cuda:sm_90a", "paged_attention", args, kwargs, True, monkeypatch)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_states_merge(target: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    states = (torch.randn(7, 3, 72).to(dtype), torch.randn(3, 7), torch.randn(7, 3, 72).to(dtype), torch.randn(3, 7))
    states[1][0, 0] = states[3][0, 1] = states[1][1, 1] = states[3][1, 1] = -float("inf")
    got, _ = emulated(target, "merge_attention_states", states, {}, True, monkeypatch)
    exact = module_of("merge_attention_states").reference(*(x.double() for x in states))
    torch.testing.assert_close(got[0].double(), exact[0], atol=1e-6, rtol=torch.finfo(dtype).eps)
    torch.testing.assert_close(got[1].double(), exact[1], atol=1e-5, rtol=1e-6)
