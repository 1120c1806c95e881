"""Loops that load through tensor descriptors, on the emulator: rings, products that move apart, blocks of several axes, ends that
do not fit. Every schedule leaves the same, and no race, missing wait or fence is found."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda import ttir_to_ttgir as pipeline
from kernelpack.options import Options
from kernelpack.simt import Program
from kernelpack.simt.compile import compile_program
from kernelpack.target import Target
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.running import run_every_schedule, shows


@kp.jit
def attention(q, k, v, out, heads, queries, keys, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attention of [heads, rows, D] tensors without a scale."""
    head, first = tl.program_id(1), tl.program_id(0) * BM
    q_blocks = tl.make_tensor_descriptor(q, [heads, queries, D], [queries * D, D, 1], [1, BM, D])
    k_blocks = tl.make_tensor_descriptor(k, [heads, keys, D], [keys * D, D, 1], [1, BN, D])
    v_blocks = tl.make_tensor_descriptor(v, [heads, keys, D], [keys * D, D, 1], [1, BN, D])
    out_blocks = tl.make_tensor_descriptor(out, [heads, queries, D], [queries * D, D, 1], [1, BM, D])
    query = tl.reshape(q_blocks.load([head, first, 0]), [BM, D])
    peak = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for at in range(0, keys, BN):
        scores = tl.dot(query, tl.reshape(k_blocks.load([head, at, 0]), [BN, D]).T)
        scores = tl.where(at + tl.arange(0, BN)[None, :] < keys, scores, -float("inf"))
        largest = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp(scores - largest[:, None])
        scale = tl.exp(peak - largest)
        total = total * scale + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.bfloat16), tl.reshape(v_blocks.load([head, at, 0]), [BN, D]), acc * scale[:, None])
        peak = largest
    out_blocks.store([head, first, 0], tl.reshape((acc / total[:, None]).to(tl.bfloat16), [1, BM, D]))


def attention_launch(keys: int, stages: int) -> Launch:
    heads, queries, size = 2, 144, 64
    q, k, v = (torch.randn(heads, rows, size).bfloat16() * 0.5 for rows in (queries, keys, keys))
    out = torch.full((heads, queries, size), float("nan")).bfloat16()
    expected = torch.softmax(q.double() @ k.double().mT, -1) @ v.double()
    arguments = {"q": q, "k": k, "v": v, "out": out, "heads": heads, "queries": queries, "keys": keys}
    arguments |= {"BM": 128, "BN": 32, "D": size}  # two warpgroups, whose products move apart
    return Launch(attention, (2, heads, 1), arguments, {"out": expected}, 2e-2, Options(num_warps=8, num_stages=stages))


@kp.jit
def sums(x, out, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    """Sums over the columns of a tensor: loads that run ahead of no product."""
    blocks = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [BM, BN])
    at, acc = 0, tl.zeros([BM, BN], tl.float32)
    for _ in range(0, columns, BN):
        acc += blocks.load([tl.program_id(0) * BM, at])
        at += BN
    places = tl.program_id(0) * BM + tl.arange(0, BM)
    tl.store(out + places, tl.sum(acc, 1), mask=places < rows)


def sums_launch(columns: int, stages: int) -> Launch:
    x, out = torch.randn(50, columns), torch.full((50,), float("nan"))
    arguments = {"x": x, "out": out, "rows": 50, "columns": columns, "BM": 32, "BN": 32}
    return Launch(sums, (2, 1, 1), arguments, {"out": x.double().sum(1)}, 1e-5, Options(num_warps=4, num_stages=stages))


@kp.jit
def persistent(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ROLES: tl.constexpr):
    """A product whose programs take one block after the other: rings begin and end in a loop, buffers are used for many things; or
    a warp of its own fills one ring for all blocks."""
    a_blocks = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    b_blocks = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    c_blocks = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    for block in tl.range(tl.program_id(0), tl.cdiv(m, BM) * tl.cdiv(n, BN), tl.num_programs(0), warp_specialize=ROLES):
        row, column = block // tl.cdiv(n, BN) * BM, block % tl.cdiv(n, BN) * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for at in range(0, k, BK):
            acc = tl.dot(a_blocks.load([row, at]), b_blocks.load([column, at]).T, acc)
        c_blocks.store([row, column], acc.to(tl.bfloat16))


def persistent_launch(k: int, roles: bool = False, num_warps: int = 4) -> Launch:
    m, n = 144, 80
    a, b = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    c = torch.full((m, n), float("nan")).bfloat16()
    arguments = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k, "BM": 16 * num_warps, "BN": 32, "BK": 32, "ROLES": roles}
    expected = {"c": a.double() @ b.double().mT}
    return Launch(persistent, (2, 1, 1), arguments, expected, 1e-2, Options(num_warps=num_warps, num_stages=3))


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(attention_launch(112, 2), id="attention"),
        pytest.param(attention_launch(208, 3), id="attention, three stages"),
        pytest.param(attention_launch(32, 3), id="attention, one block of keys"),
        pytest.param(persistent_launch(112), id="persistent"),
        pytest.param(persistent_launch(16), id="persistent, one step"),
        pytest.param(persistent_launch(112, roles=True), id="persistent, roles"),
        pytest.param(persistent_launch(16, roles=True, num_warps=8), id="persistent, roles, two warpgroups, one step"),
        pytest.param(sums_launch(208, 3), id="sums"),
        pytest.param(sums_launch(32, 4), id="sums, fewer blocks than buffers"),
    ],
)
def test_loops_compute_what_torch_does(launch: Launch) -> None:
    program, values = program_of(launch)
    run_every_schedule(program, launch.grid, values)
    launch.check(launch.arguments)


def program_of(launch: Launch) -> tuple[Program, list[Any]]:
    special, values = launch.specialize()
    return compile_program(launch.fn, special, Target.parse("cuda:sm_90a"), launch.options), values


def test_attention_without_roles_fills_rings_between_its_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "find_ptxas", lambda: None)  # nvJitLink drops setmaxnreg: nobody gets roles
    launch = attention_launch(208, 3)
    program, values = program_of(launch)
    assert program.threads == 256
    run_every_schedule(program, launch.grid, values)
    launch.check(launch.arguments)


def test_every_wait_of_roles_is_needed() -> None:
    launch = persistent_launch(112, roles=True, num_warps=8)
    program, values = program_of(launch)
    waits = [fault for fault in program.removable if fault.kind == "wait"]
    assert len(waits) >= 4  # for full and empty buffers, for products in the loop and after it
    for fault in waits:
        assert shows(program, launch, values, fault), program.describe(fault.sites[0])
