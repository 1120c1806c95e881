"""Accesses that a kernel says it makes once: the same results, wherever they are aligned, and the instructions for it."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.agreement import check, ttir_of


@kp.jit
def twice(x, out, n, first, BLOCK: tl.constexpr, READ: tl.constexpr, WRITE: tl.constexpr):
    for begin in range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        value = tl.load(x + first + i, mask=i < n, eviction_policy=READ)
        tl.store(out + first + i, value * 2, mask=i < n, cache_modifier=WRITE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [0, 1, 16])
def test_streams_compute_the_same_at_any_address(dtype: torch.dtype, first: int) -> None:
    x = torch.randn(1024).to(dtype)
    check(twice, (1,), x, torch.zeros(1024, dtype=dtype), 700, first, BLOCK=128, READ="evict_first", WRITE=".cs")


@pytest.mark.parametrize("streams", [False, True])
def test_stores_past_caches_are_fenced_and_only_where_asked_for(streams: bool) -> None:
    policies = {"READ": "evict_first", "WRITE": ".cs"} if streams else {"READ": "", "WRITE": ""}
    module = optimise_ttir(ttir_of(twice, (torch.zeros(8), torch.zeros(8), 700, 0), {"BLOCK": 128, **policies}))
    llir = str(compile_ttir(module, Target.parse("cpu:x86-64-v4"), Options()).stages["llir"])
    for text in ("!nontemporal !2", "call void @llvm.x86.sse.sfence", "call void @llvm.prefetch"):
        assert (text in llir) == streams
