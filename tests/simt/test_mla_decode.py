"""mla_decode as it is compiled for GPUs: nothing is reported, and it is as accurate as torch."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.ops.grid import module_of
from tests.ops.latent_batches import arguments, latent, problem
from tests.ops.paged_batches import DTYPES
from tests.simt import emulated_ops
from tests.simt.emulated_ops import call
from tests.simt.test_ops import TARGETS

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
