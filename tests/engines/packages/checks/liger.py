"""Liger: kernels for training, by the functions of liger_kernel.transformers.functional, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional as torch_functional

from tests.engines.cases import Pair, case
from tests.engines.packages.checks.inputs import gradients, normal, uniform

PACKAGE = "liger_kernel"
ROWS, COLUMNS, WORDS = 37, 320, 1000


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch_functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def targets() -> torch.Tensor:
    chosen = torch.randint(0, WORDS, (ROWS,))
    chosen[::5] = -100
    return chosen


@case(PACKAGE, "rms_norm, layer_norm, group_norm, fused_add_rms_norm", 1e-4)
def norms() -> Iterator[Pair]:
    from liger_kernel.transformers import functional as liger

    x, weight, bias = normal(ROWS, COLUMNS), normal(COLUMNS), normal(COLUMNS)
    yield from gradients(lambda x, w: liger.liger_rms_norm(x, w, 1e-6, in_place=False), rms, x, weight)
    yield from gradients(
        lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5),
        lambda x, w, b: torch_functional.layer_norm(x, (COLUMNS,), w, b, 1e-5), x, weight, bias,
    )  # fmt: skip
    yield from gradients(
        lambda x, w, b: liger.liger_group_norm(x, w, b, 32, 4, 1e-5),
        lambda x, w, b: torch_functional.group_norm(x, 4, w, b, 1e-5), normal(3, 32, 100), normal(32), normal(32),
    )  # fmt: skip
    yield from gradients(
        lambda x, r, w: liger.liger_fused_add_rms_norm(x, r, w, 1e-6, in_place=False),
        lambda x, r, w: (rms(x + r, w), x + r), x, normal(ROWS, COLUMNS), weight,
    )  # fmt: skip


@case(PACKAGE, "swiglu, geglu, relu_squared", 1e-4)
def activations() -> Iterator[Pair]:
    from liger_kernel.transformers import functional as liger

    a, b = normal(ROWS, COLUMNS), normal(ROWS, COLUMNS)
    yield from gradients(liger.liger_swiglu, lambda a, b: torch_functional.silu(a) * b, a, b)
    yield from gradients(liger.liger_geglu, lambda a, b: torch_functional.gelu(a, approximate="tanh") * b, a, b)
    yield from gradients(liger.liger_relu_squared, lambda a: a.relu().square(), a)


@case(PACKAGE, "dyt", 1e-4)
def dyt() -> Iterator[Pair]:
    from liger_kernel.transformers import functional as liger

    yield from gradients(
        liger.liger_dyt, lambda x, alpha, g, b: g * torch.tanh(alpha * x) + b,
        normal(ROWS, COLUMNS), normal(1), normal(COLUMNS), normal(COLUMNS),
    )  # fmt: skip


@case(PACKAGE, "softmax, sparsemax", 1e-4)
def softmaxes() -> Iterator[Pair]:
    from liger_kernel.transformers import functional as liger

    def sparsemax(x: torch.Tensor) -> torch.Tensor:
        ordered, _ = x.sort(-1, descending=True)
        sums, places = ordered.cumsum(-1), torch.arange(1, x.shape[-1] + 1)
        kept = (1 + places * ordered > sums).sum(-1, keepdim=True)
        return (x - (sums.gather(-1, kept - 1) - 1) / kept).relu()

    x = normal(ROWS, COLUMNS)
    yield from gradients(liger.liger_softmax, lambda x: x.softmax(-1), x)
    yield from gradients(liger.liger_sparsemax, sparsemax, x)


@case(PACKAGE, "rope", 1e-4)
def rope() -> Iterator[Pair]:
    from liger_kernel.transformers import functional as liger

    def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    angles = uniform(1, 50, 32).repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    yield from gradients(
        lambda q, k: liger.liger_rope(q, k, cos, sin),
        lambda q, k: (turned(q, cos, sin), turned(k, cos, sin)), normal(2, 4, 50, 64), normal(2, 2, 50, 64),
    )  # fmt: skip


@case(PACKAGE, "cross_entropy, fused_linear_cross_entropy", 1e-4)
def cross_entropies() -> Iterator[Pair]:
    from liger_kernel.transformers import functional as liger

    chosen = targets()
    for options in ({}, {"label_smoothing": 0.1, "reduction": "sum"}, {"weight": uniform(WORDS)}):
        yield from gradients(
            partial(liger.liger_cross_entropy, target=chosen, **options),
            partial(torch_functional.cross_entropy, target=chosen, **options),
            normal(ROWS, WORDS),
        )
    yield from gradients(
        lambda x, w, b: liger.liger_fused_linear_cross_entropy(x, w, chosen, b),
        lambda x, w, b: torch_functional.cross_entropy(x @ w.T + b, chosen),
        normal(ROWS, 64), normal(WORDS, 64), normal(WORDS),
    )  # fmt: skip


@case(PACKAGE, "jsd, kl_div, tvd, fused_linear_jsd", 1e-4)
def divergences() -> Iterator[Pair]:
    from liger_kernel.transformers import functional as liger

    def kl(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch_functional.kl_div(x, y, reduction="batchmean", log_target=True)

    def jsd(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        middle = ((x.exp() + y.exp()) / 2).log()
        return (kl(middle, x) + kl(middle, y)) / 2

    y = normal(ROWS, WORDS).log_softmax(-1)
    x = normal(ROWS, WORDS).log_softmax(-1)
    yield from gradients(lambda x: liger.liger_jsd(x, y), lambda x: jsd(x, y), x)
    yield from gradients(
        lambda x: liger.liger_kl_div(x, y.exp(), reduction="batchmean"),
        lambda x: torch_functional.kl_div(x, y.exp(), reduction="batchmean"), x,
    )  # fmt: skip
    yield from gradients(
        lambda p: liger.liger_tvd(p, y.exp(), reduction="batchmean"), lambda p: (p - y.exp()).abs().sum() / 2 / ROWS, x.exp()
    )
    teacher, teacher_weight = normal(ROWS, 48, scale=0.3), normal(WORDS, 48, scale=0.3)
    yield from gradients(
        lambda s, w: liger.liger_fused_linear_jsd(s, w, teacher, teacher_weight),
        lambda s, w: jsd((s @ w.T).log_softmax(-1), (teacher @ teacher_weight.T).log_softmax(-1)),
        normal(ROWS, 64, scale=0.3), normal(WORDS, 64, scale=0.3),
    )  # fmt: skip
