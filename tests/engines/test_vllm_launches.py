"""Launches as vLLM's V2 model runner makes them, in the shapes of SmolLM2, of kernels of our own that do what its sampling kernels do."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built")

REQUESTS, SLOTS, WORDS, BLOCK = 5, 8, 49152, 8192


@kp.jit
def scale_by_temperature(logits, stride, slots, temperatures, words, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    temperature = tl.load(temperatures + tl.load(slots + row)).to(tl.float32)
    if temperature == 0.0 or temperature == 1.0:
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * stride + at, mask=at < words).to(tl.float32)
    tl.store(logits + row * stride + at, value / temperature, mask=at < words)


@kp.jit
def penalise(
    logits,
    stride,
    slots,
    repetition,
    frequency,
    presence,
    in_prompt,
    prompt_stride,
    counts,
    count_stride,
    words,
    BLOCK: tl.constexpr,
):
    row, block = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row)
    by, often, once = tl.load(repetition + slot), tl.load(frequency + slot), tl.load(presence + slot)
    if by == 1.0 and often == 0.0 and once == 0.0:
        return
    at = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * stride + at, mask=at < words).to(tl.float32)
    count = tl.load(counts + slot * count_stride + at, mask=at < words, other=0)
    packed = tl.load(in_prompt + slot * prompt_stride + block * BLOCK // 32 + tl.arange(0, BLOCK // 32))
    known = ((packed[:, None] >> tl.arange(0, 32)[None, :]) & 1).reshape(BLOCK) != 0
    seen = known | (count > 0)
    value = tl.where(seen, tl.where(value > 0, value / by, value * by), value)
    value -= often * count + once * (count > 0)
    tl.store(logits + row * stride + at, value, mask=at < words)


@kp.jit
def drop_unlikely(logits, stride, slots, least, words, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    share = tl.load(least + tl.load(slots + row)).to(tl.float32)
    if share == 0.0:
        return
    largest = float("-inf")
    for begin in range(0, words, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        value = tl.load(logits + row * stride + at, mask=at < words, other=float("-inf"))
        largest = tl.max(tl.maximum(value, largest))
    largest = largest.to(tl.float32)
    for begin in range(0, words, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        value = tl.load(logits + row * stride + at, mask=at < words, other=float("-inf"))
        tl.store(logits + row * stride + at, tl.where(value < largest + tl.log(share), float("-inf"), value), mask=at < words)


@kp.jit
def allow_and_bias(
    logits,
    stride,
    slots,
    allowed_count,
    allowed,
    places,
    bias_count,
    biased,
    biases,
    words,
    FEW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    slot = tl.load(slots + row)
    entry = tl.arange(0, FEW)
    count = tl.load(allowed_count + slot)
    if count > 0:
        keep = entry < count
        token = tl.load(allowed + slot * places + entry, mask=keep)
        kept = tl.load(logits + row * stride + token, mask=keep)
        tl.debug_barrier()
        for begin in range(0, words, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            tl.store(logits + row * stride + at, float("-inf"), mask=at < words)
        tl.debug_barrier()
        tl.store(logits + row * stride + token, kept, mask=keep)
    count = tl.load(bias_count + slot)
    if count > 0:
        tl.debug_barrier()
        token = tl.load(biased + slot * places + entry, mask=entry < count)
        more = tl.load(biases + slot * places + entry, mask=entry < count)
        value = tl.load(logits + row * stride + token, mask=entry < count) + more
        tl.store(logits + row * stride + token, value, mask=entry < count)


@kp.jit
def noise_of(seed, position, at):
    return -tl.log(-tl.log(tl.maximum(tl.rand(tl.randint(seed, position), at), 1e-7)))


@kp.jit
def best_of_block(ids, values, blocks, logits, stride, slots, seeds, positions, temperatures, words, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row)
    at = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * stride + at, mask=at < words, other=float("-inf")).to(tl.float32)
    if tl.load(temperatures + slot) != 0.0:
        value += noise_of(tl.load(seeds + slot), tl.load(positions + row), at)
    largest, where = tl.max(value, axis=0, return_indices=True)
    tl.store(ids + row * blocks + block, (block * BLOCK + where).to(tl.int64))
    tl.store(values + row * blocks + block, largest)


@kp.jit
def noise(out, seed, position, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, noise_of(seed, position, at))


@pytest.fixture
def logits() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(REQUESTS, WORDS) * 4


@pytest.fixture
def slots() -> torch.Tensor:
    return torch.tensor([6, 0, 3, 7, 1], dtype=torch.int32)


@pytest.fixture
def no_barrier(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """vLLM replaces the barrier by a function of Python's on CPUs."""
    called: list[None] = []
    monkeypatch.setenv("KERNELPACK_CACHE", "0")
    monkeypatch.setattr(tl, "debug_barrier", lambda: called.append(None))
    return called


def grid() -> tuple[int, int]:
    return REQUESTS, -(-WORDS // BLOCK)


def test_temperature(logits: torch.Tensor, slots: torch.Tensor) -> None:
    temperatures = torch.tensor([0.0, 1.0, 0.5, 0.7, 2.0, 1.0, 1.3, 0.9])
    wanted = logits / temperatures[slots.long()].where(temperatures[slots.long()] != 0, 1.0)[:, None]
    scale_by_temperature[grid()](logits, logits.stride(0), slots, temperatures, WORDS, BLOCK=BLOCK)
    torch.testing.assert_close(logits, wanted)


def test_penalties(logits: torch.Tensor, slots: torch.Tensor) -> None:
    by, often, once = 1 + torch.arange(SLOTS) / 8, torch.arange(SLOTS) / 16, torch.arange(SLOTS) / 10
    known, counts = torch.rand(SLOTS, WORDS) < 0.01, torch.randint(0, 60, (SLOTS, WORDS)).clamp(min=57).int() - 57
    packed = (known.view(SLOTS, -1, 32).long() << torch.arange(32)).sum(2).to(torch.int32)
    rows = slots.long()
    wanted = torch.where(logits > 0, logits / by[rows, None], logits * by[rows, None]).where(
        known[rows] | (counts[rows] > 0), logits
    )
    wanted = wanted - often[rows, None] * counts[rows] - once[rows, None] * (counts[rows] > 0)
    penalise[grid()](
        logits, logits.stride(0), slots, by, often, once, packed, packed.stride(0), counts, counts.stride(0), WORDS, BLOCK=BLOCK
    )
    torch.testing.assert_close(logits, wanted)


def test_min_p(logits: torch.Tensor, slots: torch.Tensor) -> None:
    least = torch.tensor([0.0, 0.1, 0.5, 0.02, 0.3, 0.1, 0.9, 0.001])
    share = logits.softmax(1)
    wanted = logits.masked_fill(share < least[slots.long(), None] * share.amax(1, keepdim=True), float("-inf"))
    drop_unlikely[(REQUESTS,)](logits, logits.stride(0), slots, least, WORDS, BLOCK=1024)
    torch.testing.assert_close(logits, wanted)
    assert wanted.isinf().any()


def test_allowed_tokens_and_biases(logits: torch.Tensor, slots: torch.Tensor, no_barrier: list[None]) -> None:
    allowed_count, bias_count = torch.zeros(SLOTS, dtype=torch.int32), torch.zeros(SLOTS, dtype=torch.int32)
    allowed, biased, biases = (torch.zeros(SLOTS, 128, dtype=dtype) for dtype in (torch.int32, torch.int32, torch.float32))
    wanted = logits.clone()
    allowed_count[6], allowed[6, :100] = 100, torch.randperm(WORDS)[:100].int()
    wanted[0] = float("-inf")
    wanted[0, allowed[6, :100].long()] = logits[0, allowed[6, :100].long()]
    bias_count[3], biased[3, :7], biases[3, :7] = 7, torch.randperm(WORDS)[:7].int(), torch.randn(7)
    wanted[2, biased[3, :7].long()] += biases[3, :7]
    allow_and_bias[(REQUESTS,)](
        logits, logits.stride(0), slots, allowed_count, allowed, 128, bias_count, biased, biases, WORDS, FEW=128, BLOCK=1024
    )
    torch.testing.assert_close(logits, wanted, rtol=0, atol=0)
    assert no_barrier, "the function is called while the kernel is compiled"


def test_gumbel_sampling(logits: torch.Tensor, slots: torch.Tensor) -> None:
    temperatures, seeds = torch.tensor([0.0, 1.0, 0.5, 0.7, 2.0, 1.0, 1.3, 0.9]), torch.randint(0, 2**62, (SLOTS,))
    positions, blocks = torch.randint(0, 2000, (REQUESTS,)), WORDS // 1024
    ids, values = torch.empty(REQUESTS, blocks, dtype=torch.int64), torch.empty(REQUESTS, blocks)
    best_of_block[(REQUESTS, blocks)](
        ids, values, blocks, logits, logits.stride(0), slots, seeds, positions, temperatures, WORDS, BLOCK=1024
    )
    got = ids.gather(1, values.argmax(1, keepdim=True)).flatten()
    drawn = torch.zeros(REQUESTS, WORDS)
    for row, slot in enumerate(slots.tolist()):
        if temperatures[slot]:
            noise[(blocks,)](drawn[row], seeds[slot].item(), positions[row].item(), BLOCK=1024)
    assert torch.equal(got, (logits + drawn).argmax(1))
    assert 0.5 < drawn[0].mean() < 0.65, "0.577 is the mean of Gumbel's distribution"
