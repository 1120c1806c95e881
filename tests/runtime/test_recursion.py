"""Formulas that unrolled loops string together, and calls after calls, compile however many they are; Python's recursion limit is
left as it was."""

import sys
import threading

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.facts import Fact
from kernelpack.options import Options
from kernelpack.process_wide import deep_recursion
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.specialization import Specialization
from kernelpack.target import Target
from tests.frontend.compiling import define

STEPS = 600
"""More than Python's own limit lets the analyses of either backend follow."""


@kp.jit
def sums_a_column(x, out, stride, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    places = x + offsets
    total = tl.zeros([BLOCK], tl.float32)
    for _ in tl.static_range(STEPS):
        total = total * 0.5 + 1.0
        places += stride
    tl.store(out + offsets, total + tl.load(places))


@kp.jit
def scales_a_block(x, out, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    block = tl.load(x + offsets)
    for step in tl.static_range(STEPS):
        block = block * 0.5 + step
    tl.store(out + offsets, block)


@kp.jit
def hashes(out, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    word = tl.arange(0, BLOCK)
    for step in tl.static_range(STEPS):
        word = word * 3 ^ step
    tl.store(out + tl.arange(0, BLOCK), word)


def test_the_cpu_computes_what_a_long_loop_unrolls_to():
    x, out = torch.arange(16 * (STEPS + 1), dtype=torch.float32), torch.empty(16)
    sums_a_column[(1,)](x, out, 16, STEPS=STEPS, BLOCK=16)
    assert torch.equal(out, x[-16:] + 2)


def test_formulas_on_cpus_may_be_longer_than_that():
    """A kernel of 3,000 statements ended in a RecursionError."""
    body = "".join(f"    x = x * 0.5 + {number % 7}.0\n" for number in range(3000))
    kernel = f"@kp.jit\ndef kernel(p):\n    x = tl.load(p + tl.arange(0, 16))\n{body}    tl.store(p + tl.arange(0, 16), x)\n"
    x = torch.rand(16)
    expected = x.clone()
    for number in range(3000):
        expected = expected * 0.5 + number % 7
    define(kernel)["kernel"][(1,)](x)
    torch.testing.assert_close(x, expected)


def test_tiles_of_two_dimensions_too():
    x, out = torch.rand(8, 8), torch.empty(8, 8)
    scales_a_block[(1,)](x, out, STEPS=STEPS, BLOCK=8)
    expected = x
    for step in range(STEPS):
        expected = expected * 0.5 + step
    assert torch.equal(out, expected)


def test_gpus_have_code_for_what_a_long_loop_unrolls_to():
    special = Specialization((("out", "*i32"),), (("STEPS", STEPS), ("BLOCK", 1024)), (Fact("out", "tt.divisibility", 16),))
    assert compile_kernel(hashes, special, Target.parse("cuda:sm_80"), Options()).image


def test_functions_may_call_functions_as_deep():
    """200 were refused, with words about recursion."""
    first = "@kp.jit\ndef call_0(x):\n    return x + 1\n"
    others = (f"@kp.jit\ndef call_{n}(x):\n    return call_{n - 1}(x) * 2\n" for n in range(1, 300))
    kernel = "@kp.jit\ndef kernel(out, x):\n    tl.store(out, call_299(x))\n"
    out = torch.empty(1, dtype=torch.int32)
    define("\n".join([first, *others, kernel]))["kernel"][(1,)](out, 3)
    assert out.item() == 0  # 4 * 2**299, in 32 bits


def test_the_limit_is_as_before_after_the_last_of_several_compilations():
    before = sys.getrecursionlimit()
    first_is_in, second_is_done = threading.Event(), threading.Event()

    def first():
        with deep_recursion:
            first_is_in.set()
            assert second_is_done.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_is_in.wait(10)
    with pytest.raises(ZeroDivisionError), deep_recursion:
        raise ZeroDivisionError
    assert sys.getrecursionlimit() > before
    second_is_done.set()
    thread.join()
    assert sys.getrecursionlimit() == before
