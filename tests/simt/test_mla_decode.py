"""mla_decode as it is compiled for GPUs: nothing is reported, and it is as accurate as torch."""

from __future__ import annotations

import functools
import itertools
import re

import pytest
import torch

from ops import mla_decode
from tests.ops.grid import module_of
from tests.ops.latent_batches import arguments, latent, problem
from tests.ops.paged_batches import DTYPES
from tests.simt import emulated_ops
from tests.simt.emulated_ops import call
from tests.simt.fault_cases import FaultCase
from tests.simt.test_ops import TARGETS
from tests.simt.test_planted_faults import survivors

BATCHES = (
    latent("few rows", ((1, 150), (1, 17), (0, 4), (1, 0)), heads=5),
    latent("many rows", ((1, 140), (3, 70)), heads=24, block=64),
)
OFTEN = (("cuda:sm_90a", torch.bfloat16, True),)
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
    monkeypatch.setattr(emulated_ops, "_is_aligned", lambda *_: aligned)
    for batch in BATCHES:
        args, kwargs = arguments(batch, dtype)
        got, runs = call(target, module_of("mla_decode").mla_decode, args, kwargs)
        assert not problem(batch, dtype, got)
        assert len(runs) == 2  # parts and their sums


def test_the_stride_of_a_single_head_may_be_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such queries are contiguous all the same."""
    monkeypatch.setattr(emulated_ops, "_is_aligned", lambda *_: True)
    batch = latent("one head", ((3, 70), (1, 20)), heads=1)
    (query, *rest), kwargs = arguments(batch, torch.bfloat16)
    query = query.view(1, -1, 576).transpose(0, 1)
    assert query.is_contiguous()
    assert query.stride(1) == query.numel()
    got, _ = call("cuda:sm_90a", module_of("mla_decode").mla_decode, (query, *rest), kwargs)
    assert not problem(batch, torch.bfloat16, got)


HARMLESS = {
    ("fence", "hopper.async_dot(queries.left"): "sums that begin at zero are in no register yet",
    ("fence", "hopper.async_dot(queries.rope"): "nothing was written to sums that are under way",
    ("fence", "hopper.async_dot(queries.right"): "nothing was written to sums that are under way",
    ("commit", "hopper.async_dot(queries.left"): "the next commit takes these products along, and all are waited for",
    ("commit", "hopper.async_dot(queries.rope"): "the next commit takes these products along, and all are waited for",
    ("wait", "hopper.mbarrier_wait(rings.right.full"): "the role that gives weights waited for these keys before",
    ("barrier", "hopper.named_barrier_wait(SCORED"): "it says when a product begins: a matter of speed",
    ("barrier", "hopper.local_store(shared."): "every thread has waited until the tile was read",
    ("barrier", "hopper.local_load(shared.factor)"): "every thread has waited until the tile was written",
    ("arrival", "hopper.mbarrier_arrive(left.empty"): "nobody waits for the last block of keys",
}
"""What may be missing in the kernel by roles, and why nothing shows it."""


@pytest.mark.slow
def test_planted_faults_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings go round more than once, with up to two blocks of keys that do not count for all rows; with one part and two, for one block of rows
    and two. Rows and parts have neighbours, which nobody may overwrite."""
    monkeypatch.setattr(emulated_ops, "_is_aligned", lambda *_: True)
    monkeypatch.setattr(mla_decode, "PROGRAMS", 1)
    monkeypatch.setattr(mla_decode, "CHUNK", 192)
    calls = tuple(
        functools.partial(arguments, latent("faults", lengths, heads=8, **options), torch.bfloat16)
        for lengths, options in (
            (((2, 330), (9, 324)), {"scale": -0.05}),
            (((2, 330), (9, 324), (1, 1)), {"batch_invariant": True}),
            (((8, 324), (1, 300)), {}),
        )
    )
    found = survivors(FaultCase("mla_decode", "roles", calls), "cuda:sm_90a")
    by_roles = [(kind, text.strip()) for kind, text, place in found if re.match("_(mla|paged|mha)_roles.py", place)]
    assert {(kind, next((known for _, known in HARMLESS if known in text), text)) for kind, text in by_roles} <= set(HARMLESS)
