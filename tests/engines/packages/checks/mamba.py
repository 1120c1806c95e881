"""Mamba2: the scan in chunks, its steps for decoding, and norms, against the package's own references in torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import torch
from torch.nn.functional import silu, softplus

from tests.engines.cases import Pair, case
from tests.engines.packages.checks.inputs import gradients, normal, uniform

PACKAGE = "mamba_ssm"
B, T, H, P, G, N = 2, 200, 4, 32, 1, 16


@contextmanager
def questions_answered() -> Iterator[None]:
    """Answers what mamba_ssm asks about GPUs: it imports its CUDA extension, enters the tensors' GPU and counts its multiprocessors."""
    sys.modules.setdefault("selective_scan_cuda", ModuleType("selective_scan_cuda"))
    with (
        patch.object(torch.cuda, "device", lambda index: nullcontext()),
        patch.object(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=4)),
    ):
        yield


def with_answers(run: Callable[[], Iterator[Pair]]) -> Callable[[], Iterator[Pair]]:
    """Decorator: questions are answered while a check runs."""

    @wraps(run)
    def answered() -> Iterator[Pair]:
        with questions_answered():
            yield from run()

    return answered


def steps(
    x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor
) -> torch.Tensor:
    """Returns the scan, token by token."""
    state, results = x.new_zeros(B, H, P, N), []
    for t in range(x.shape[1]):
        step = softplus(dt[:, t])[..., None, None]
        taken = x[:, t, :, :, None] * b[:, t].repeat_interleave(H // G, 1)[:, :, None, :]
        state = state * torch.exp(step * a[:, None, None]) + step * taken
        results.append((state * c[:, t].repeat_interleave(H // G, 1)[:, :, None, :]).sum(-1) + d[:, None] * x[:, t])
    return torch.stack(results, 1)


@case(PACKAGE, "mamba_chunk_scan_combined", 1e-3)
@with_answers
def chunk_scan() -> Iterator[Pair]:
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    yield from gradients(
        lambda x, dt, a, b, c, d: mamba_chunk_scan_combined(x, dt, a, b, c, 64, D=d, dt_softplus=True), steps,
        normal(B, T, H, P), normal(B, T, H), -uniform(H), normal(B, T, G, N), normal(B, T, G, N), normal(H),
    )  # fmt: skip


@case(PACKAGE, "selective_state_update", 1e-4)
@with_answers
def decoding() -> Iterator[Pair]:
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update, selective_state_update_ref

    x, dt, z, d = normal(B, H, P), normal(B, H, P), normal(B, H, P), normal(H, P)
    a, b, c, state = -uniform(H, P, N), normal(B, G, N), normal(B, G, N), normal(B, H, P, N)
    options = {"D": d, "z": z, "dt_bias": normal(H, P), "dt_softplus": True}
    other = state.clone()
    yield selective_state_update(state, x, dt, a, b, c, **options), selective_state_update_ref(other, x, dt, a, b, c, **options)
    yield state, other


@case(PACKAGE, "layer_norm_fn, rms_norm_fn", 1e-4)
@with_answers
def norms() -> Iterator[Pair]:
    from mamba_ssm.ops.triton import layer_norm

    x, residual, weight, bias = normal(37, 320), normal(37, 320), normal(320), normal(320)
    yield from gradients(
        lambda x, r, w, b: layer_norm.layer_norm_fn(x, w, b, residual=r),
        lambda x, r, w, b: torch.nn.functional.layer_norm(x + r, (320,), w, b, 1e-6), x, residual, weight, bias,
    )  # fmt: skip
    yield from gradients(
        lambda x, w: layer_norm.rms_norm_fn(x, w, None),
        lambda x, w: torch.nn.functional.rms_norm(x, (320,), w, 1e-6),
        x,
        weight,
    )


@case(PACKAGE, "rmsnorm_fn, gated", 1e-4)
@with_answers
def gated_norm() -> Iterator[Pair]:
    from mamba_ssm.ops.triton.layernorm_gated import rmsnorm_fn

    yield from gradients(
        lambda x, w, z: rmsnorm_fn(x, w, None, z=z, eps=1e-6, norm_before_gate=False),
        lambda x, w, z: torch.nn.functional.rms_norm(x * silu(z), (320,), w, 1e-6), normal(37, 320), normal(320), normal(37, 320),
    )  # fmt: skip
