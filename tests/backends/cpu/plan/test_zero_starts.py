"""Loops whose products begin at zero."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.plan.plans import AMX, BF16, plan, same_text

TYPES = {"a": "*bf16", "b": "*bf16", "n": "i32"}


@kp.jit
def summed(a, b, out, n):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    sums = tl.zeros((16, 16), tl.float32)
    for k in range(n):
        x = tl.load(a + i * 16 + j + k)
        y = tl.load(b + i * 16 + j + k)
        sums = tl.dot(x, y, sums)
    target = out + i * 16 + j
    tl.store(target, sums)


def test_a_tile_that_products_alone_take_is_filled_where_there_is_no_iteration() -> None:
    text = plan(summed, AMX, **TYPES)
    before, _, loop = text.partition("for %k carrying sums\n")
    assert "sums <- " not in before
    body, _, after = loop.partition("without an iteration\n")
    assert "sums <- %x in place * y + %sums" in body
    same_text(
        after,
        """
          nest 16x16, lanes 1
            sums <- 0.0
        nest 16x16, lanes 1
          store %sums to %target
        """,
    )


def test_other_products_read_what_was_filled() -> None:
    before, _, loop = plan(summed, BF16, **TYPES).partition("for %k carrying sums\n")
    assert "sums <- 0.0" in before
    assert "without an iteration" not in loop


@kp.jit
def rescaled(a, b, out, n):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    sums = tl.zeros((16, 16), tl.float32)
    for k in range(n):
        x = tl.load(a + i * 16 + j + k)
        y = tl.load(b + i * 16 + j + k)
        sums = tl.dot(x, y, sums * 0.5)
    tl.store(out + i * 16 + j, sums)


@kp.jit
def sometimes(a, b, out, n):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    sums = tl.zeros((16, 16), tl.float32)
    for k in range(n):
        if k % 2 == 1:
            x = tl.load(a + i * 16 + j + k)
            y = tl.load(b + i * 16 + j + k)
            sums = tl.dot(x, y, sums)
    tl.store(out + i * 16 + j, sums)


@kp.jit
def from_one(a, b, out, n):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    sums = tl.full((16, 16), 1.0, tl.float32)
    for k in range(n):
        x = tl.load(a + i * 16 + j + k)
        y = tl.load(b + i * 16 + j + k)
        sums = tl.dot(x, y, sums)
    tl.store(out + i * 16 + j, sums)


def test_what_else_reads_the_tile_or_passes_it_on_finds_it_filled() -> None:
    for kernel in (rescaled, sometimes, from_one):
        text = plan(kernel, AMX, **TYPES)
        assert "without an iteration" not in text
        assert f"sums <- {1.0 if kernel is from_one else 0.0}" in text.partition("for %k")[0]
