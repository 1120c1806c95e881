"""fla: linear attention in chunks, forward and backward, against the package's own references in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.nn.functional import logsigmoid, normalize

from tests.engines.cases import Pair, case
from tests.engines.packages.checks.inputs import gradients, normal, uniform

PACKAGE = "fla_core"
B, T, H, D = 2, 150, 2, 64


def of(place: str) -> Callable[..., Any]:
    """Returns a function of fla.ops by `module:name`."""
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"fla.ops.{module}"), name)
    return function


def first(result: Any) -> torch.Tensor:
    """Returns what is computed, without the last state that some functions return beside it."""
    tensor: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return tensor


def called(place: str, *inputs: Any, **options: Any) -> torch.Tensor:
    """Returns what a function of fla.ops computes."""
    return first(of(place)(*inputs, **options))


def heads() -> torch.Tensor:
    return normal(B, T, H, D)


def decay(*sizes: int) -> torch.Tensor:
    return logsigmoid(normal(*sizes)) / 4


@case(PACKAGE, "chunk_gla, fused_recurrent_gla", 1e-3)
def gla() -> Iterator[Pair]:
    inputs = heads(), heads(), heads(), decay(B, T, H, D)
    for name in ("chunk_gla", "fused_recurrent_gla"):
        yield from gradients(partial(called, f"gla:{name}"), partial(called, "gla.naive:naive_recurrent_gla"), *inputs)


@case(PACKAGE, "chunk_simple_gla, fused_recurrent_simple_gla, parallel_simple_gla", 1e-3)
def simple_gla() -> Iterator[Pair]:
    inputs = heads(), heads(), heads(), decay(B, T, H)
    for name in ("chunk_simple_gla", "fused_recurrent_simple_gla", "parallel_simple_gla"):
        yield from gradients(
            partial(called, f"simple_gla:{name}"),
            partial(called, "simple_gla.naive:naive_recurrent_simple_gla"), *inputs,
        )  # fmt: skip


@case(PACKAGE, "chunk_retention, fused_recurrent_retention, parallel_retention", 1e-3)
def retention() -> Iterator[Pair]:
    def reference(*x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = of("retention.naive:naive_retention")(*(y.transpose(1, 2) for y in x))
        return result.transpose(1, 2)

    for name in ("chunk_retention", "fused_recurrent_retention", "parallel_retention"):
        yield from gradients(partial(called, f"retention:{name}"), reference, heads(), heads(), heads())


@case(PACKAGE, "chunk_delta_rule, fused_recurrent_delta_rule, bfloat16", 3e-2)
def delta_rule() -> Iterator[Pair]:
    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
        moved = (x.transpose(1, 2) for x in (q, k, v, beta))
        return first(of("delta_rule.naive:delta_rule_recurrence")(*moved)).transpose(1, 2)

    inputs = [x.bfloat16() for x in (heads(), normalize(heads(), dim=-1), heads(), uniform(B, T, H))]
    for name in ("chunk_delta_rule", "fused_recurrent_delta_rule"):
        yield from gradients(partial(called, f"delta_rule:{name}"), reference, *inputs)


@case(PACKAGE, "chunk_gated_delta_rule", 1e-3)
def gated_delta_rule() -> Iterator[Pair]:
    yield from gradients(
        lambda q, k, v, g, beta: first(of("gated_delta_rule:chunk_gated_delta_rule")(q, k, v, g, beta)),
        lambda q, k, v, g, beta: first(of("gated_delta_rule.naive:naive_recurrent_gated_delta_rule")(q, k, v, beta, g)),
        heads(), normalize(heads(), dim=-1), heads(), decay(B, T, H), uniform(B, T, H),
    )  # fmt: skip


@case(PACKAGE, "fused_recurrent_gated_delta_rule, forward", 1e-3)
def gated_delta_rule_decoding() -> Iterator[Pair]:
    q, k, v, g, beta = heads(), normalize(heads(), dim=-1), heads(), decay(B, T, H), uniform(B, T, H)
    state = normal(B, H, D, D)
    got = of("gated_delta_rule:fused_recurrent_gated_delta_rule")(
        q, k, v, g, beta=beta, initial_state=state, output_final_state=True
    )
    naive = of("gated_delta_rule.naive:naive_recurrent_gated_delta_rule")
    yield from zip(got, naive(q, k, v, beta, g, initial_state=state, output_final_state=True), strict=True)


@case(PACKAGE, "chunk_kda, fused_recurrent_kda forward", 1e-3)
def kda() -> Iterator[Pair]:
    inputs = heads(), normalize(heads(), dim=-1), heads(), decay(B, T, H, D), uniform(B, T, H)
    naive = of("kda.naive:naive_recurrent_kda")
    yield from gradients(partial(called, "kda:chunk_kda"), lambda *x: first(naive(*x)), *inputs)
    yield first(of("kda:fused_recurrent_kda")(*inputs)), first(naive(*inputs))


@case(PACKAGE, "chunk_linear_attn, fused_recurrent_linear_attn, fused_chunk_linear_attn", 1e-3)
def linear_attn() -> Iterator[Pair]:
    naive = of("linear_attn.naive:naive_recurrent_linear_attn")
    for name in ("chunk_linear_attn", "fused_recurrent_linear_attn", "fused_chunk_linear_attn"):
        yield from gradients(
            partial(called, f"linear_attn:{name}", normalize=False),
            lambda *x: first(naive(*x)),
            heads(),
            heads(),
            heads(),
        )


@case(PACKAGE, "chunk_hgrn, fused_recurrent_hgrn", 1e-3)
def hgrn() -> Iterator[Pair]:
    for name in ("chunk_hgrn", "fused_recurrent_hgrn"):
        yield from gradients(
            partial(called, f"hgrn:{name}"), partial(called, "hgrn.naive:naive_recurrent_hgrn"),
            normal(B, T, 100), decay(B, T, 100),
        )  # fmt: skip


@case(PACKAGE, "chunk_rwkv6, fused_recurrent_rwkv6", 1e-3)
def rwkv6() -> Iterator[Pair]:
    def reference(*x: torch.Tensor) -> torch.Tensor:
        *moved, u = x
        return first(of("rwkv6.recurrent_naive:naive_recurrent_rwkv6")(*(y.transpose(1, 2) for y in moved), u)).transpose(1, 2)

    inputs = heads(), heads(), heads(), decay(B, T, H, D), normal(H, D)
    for name in ("chunk_rwkv6", "fused_recurrent_rwkv6"):
        yield from gradients(partial(called, f"rwkv6:{name}"), reference, *inputs)


@case(PACKAGE, "chunk_gsa", 1e-3)
def gsa() -> Iterator[Pair]:
    yield from gradients(
        partial(called, "gsa:chunk_gsa"), partial(called, "gsa.naive:naive_recurrent_gsa"),
        heads(), heads(), heads(), normal(B, T, H, 32).softmax(-1), decay(B, T, H, 32),
    )  # fmt: skip


@case(PACKAGE, "parallel_attn, parallel_forgetting_attn", 1e-3)
def attention() -> Iterator[Pair]:
    q, k, v = normal(B, T, 4, D), heads(), heads()
    yield from gradients(partial(called, "attn:parallel_attn"), partial(called, "attn.naive:naive_parallel_attn"), q, k, v)
    yield from gradients(
        partial(called, "forgetting_attn:parallel_forgetting_attn"),
        partial(called, "forgetting_attn.naive:naive_forgetting_attn"), q, k, v, decay(B, T, 4),
    )  # fmt: skip


@case(PACKAGE, "parallel_path_attn", 1e-3)
def path_attention() -> Iterator[Pair]:
    inputs = heads(), heads(), heads(), normalize(heads(), dim=-1), uniform(B, T, H), decay(B, T, H)
    yield from gradients(
        partial(called, "path_attn:parallel_path_attn"),
        lambda *x: first(of("path_attn.naive:naive_path_attn")(*x, D**-0.5)), *inputs,
    )  # fmt: skip
