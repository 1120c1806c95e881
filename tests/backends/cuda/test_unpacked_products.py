"""Products of codes that a kernel unpacks from words: words are read as the product wants its operand, and unpacked there."""

from __future__ import annotations

import re

import pytest
import torch

import kernelpack.language as tl
from kernelpack import jit
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch, fresh, random
from tests.backends.cuda.running import emulate

COLUMNS, ROWS, DEPTH = 32, 16, 256


@jit
def unpacked_matmul(words, x, out, depth, BN: tl.constexpr, BM: tl.constexpr, PARTS: tl.constexpr):
    """out [N, M] = codes [N, K] x [M, K]^T: word [k / 8, n] has eight codes of four bits, neighbours along k. Each of PARTS parts of a step
    has its own sums."""
    n, part = tl.arange(0, BN)[None, :, None], tl.arange(0, PARTS)[:, None, None]
    word, k = tl.arange(0, 4)[None, None, :], tl.arange(0, 32)[None, None, :]
    rows = tl.arange(0, BM)[None, :, None]
    total = tl.zeros([PARTS, BN, BM], tl.float32)
    for start in range(0, depth, 32 * PARTS):
        packed = tl.load(words + (start // 8 + 4 * part + word) * BN + n)
        value = tl.load(x + rows * depth + start + 32 * part + k)
        codes = (packed[:, :, :, None] >> (4 * tl.arange(0, 8))[None, None, None, :]) & 15
        codes = tl.reshape(codes, [PARTS, BN, 32]).to(tl.bfloat16)
        total = tl.dot(codes, tl.permute(value, (0, 2, 1)), total)
    tl.store(out + tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :], tl.sum(total, axis=0))


def unpacked(parts: int, num_stages: int) -> Launch:
    codes = torch.randint(0, 16, (COLUMNS, DEPTH))
    x = random(ROWS, DEPTH, dtype=torch.bfloat16)
    words = (codes.reshape(COLUMNS, DEPTH // 8, 8) << (4 * torch.arange(8))).sum(-1).T.contiguous()
    words = words.to(torch.int32)
    arguments = {"words": words, "x": x, "out": fresh(COLUMNS, ROWS), "depth": DEPTH, "BN": COLUMNS, "BM": ROWS, "PARTS": parts}
    return Launch(
        unpacked_matmul,
        (1,),
        arguments,
        {"out": codes.double() @ x.double().T},
        1e-6,
        Options(num_warps=4, num_stages=num_stages),
    )


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("num_stages", [1, 3])
def test_results(target: str, parts: int, num_stages: int) -> None:
    emulate(unpacked(parts, num_stages), target)


def test_words_are_read_as_the_product_wants_its_operand() -> None:
    """What is computed from them stays in registers."""
    text = str(unpacked(4, 3).compile("cuda:sm_80").stages["ttgir"])
    loop = text[text.index("scf.for") : text.index("scf.yield")]
    assert loop.count("ttg.local_load") == 2  # words and values
    assert not re.search(r"ttg\.(local_alloc|convert_layout)", loop)
