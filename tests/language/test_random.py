"""Random numbers: the published streams of Philox, by the interpreter and compiled for a CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError
from tests.frontend.compiling import compile_kernel, kernel, run

N = 16


@kp.jit
def streams(integers, uniforms, normals, seed, base, N: tl.constexpr, WIDE: tl.constexpr):
    index = tl.arange(0, N)
    offset = base + index
    if WIDE:
        offset = offset.to(tl.int64) * 1000000007
    tl.store(integers + index, tl.randint(seed, offset))
    tl.store(uniforms + index, tl.rand(seed, offset))
    tl.store(normals + index, tl.randn(seed, offset))
    _, b, c, d = tl.randint4x(seed, offset)
    tl.store(integers + N + index, b)
    tl.store(integers + 2 * N + index, c)
    tl.store(integers + 3 * N + index, d)
    _, v, w, x = tl.rand4x(seed, offset)
    tl.store(uniforms + N + index, v)
    tl.store(uniforms + 2 * N + index, w)
    tl.store(uniforms + 3 * N + index, x)
    _, n, o, p = tl.randn4x(seed, offset)
    tl.store(normals + N + index, n)
    tl.store(normals + 2 * N + index, o)
    tl.store(normals + 3 * N + index, p)


Run = Callable[..., None]


@pytest.fixture(params=["interpreter", "cpu"])
def run_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a kernel's one program: by the interpreter, or compiled for this CPU."""
    if request.param == "interpreter":
        return lambda fn, **arguments: run(fn, 1, **arguments)
    if importlib.util.find_spec("kernelpack._C") is None:
        pytest.skip("kernelpack._C is not built")
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    return lambda fn, **arguments: fn[(1,)](**arguments)


@kp.jit
def load_words(out, counters):
    a, b, c, d = tl.random.philox_impl(
        tl.load(counters), tl.load(counters + 1), tl.load(counters + 2), tl.load(counters + 3),
        tl.load(counters + 4), tl.load(counters + 5),
    )  # fmt: skip
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)
    tl.store(out + 3, d)


@pytest.mark.parametrize(
    ("width", "counters", "expected"),
    [  # the known answers that come with the authors' Random123
        (32, [0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (32, [0xFFFFFFFF] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            32,
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
        (64, [0] * 6, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
    ],
)
def test_known_answers(run_kernel: Run, width: int, counters: list[int], expected: list[int]) -> None:
    dtype = torch.uint32 if width == 32 else torch.uint64
    out = torch.zeros(4, dtype=dtype)
    run_kernel(load_words, out=out, counters=torch.tensor(counters, dtype=dtype))
    assert out.tolist() == expected


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 by the paper's text."""
    mask = 0xFFFFFFFF
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * counter[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * counter[2], 1 << 32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


@pytest.mark.parametrize(
    ("seed", "base", "wide"), [(0, 0, False), (1234, 7, False), (2**40 + 5, 100, True), (-3, 2**31 - 20, False)]
)
def test_streams(run_kernel: Run, seed: int, base: int, wide: bool) -> None:
    integers = torch.zeros(4, N, dtype=torch.uint32)
    uniforms, normals = torch.zeros(4, N), torch.zeros(4, N)
    run_kernel(streams, integers=integers, uniforms=uniforms, normals=normals, seed=seed, base=base, N=N, WIDE=wide)
    offsets = [(base + i) * 1000000007 if wide else base + i for i in range(N)]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    drawn = torch.tensor([philox([offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF, 0, 0], key) for offset in offsets]).T
    assert integers.tolist() == drawn.tolist()
    # a word's bits as a signed number, negative ones mirrored, times just below 2^-31, rounded once to float32
    signed = torch.where(drawn >= 1 << 31, (1 << 32) - 1 - drawn, drawn).to(torch.int32)
    expected = signed.float() * torch.tensor(4.6566127342e-10)
    assert torch.equal(uniforms, expected)
    assert ((uniforms >= 0) & (uniforms < 1)).all()
    u = expected.double().clamp(min=1e-7)
    radius = [(-2 * u[i].log()).sqrt() for i in (0, 2)]
    angle = [2 * torch.pi * expected[i].double() for i in (1, 3)]
    pairs = [radius[0] * angle[0].cos(), radius[0] * angle[0].sin(), radius[1] * angle[1].cos(), radius[1] * angle[1].sin()]
    torch.testing.assert_close(normals, torch.stack(pairs).float(), rtol=1e-5, atol=2e-6)


@kp.jit
def few_rounds(out, seed, N: tl.constexpr, ROUNDS: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.randint(seed, tl.arange(0, N), ROUNDS))


def test_rounds_can_be_chosen(run_kernel: Run) -> None:
    out = torch.zeros(3, N, dtype=torch.uint32)
    for row, rounds in zip(out, (1, 7, 10), strict=True):
        run_kernel(few_rounds, out=row, seed=5, N=N, ROUNDS=rounds)
    assert len({tuple(row) for row in out.tolist()}) == 3
    # one round leaves the first word without a product: 0 xor 0 xor key
    assert out[0].tolist() == [5] * N


def test_a_pair_of_uniforms_may_be_zero(run_kernel: Run) -> None:
    out: Any = torch.zeros(2)
    run_kernel(normal_of_zero, out=out)
    assert out.isfinite().all()


@kp.jit
def normal_of_zero(out):
    zero = tl.load(out)
    first, second = tl.random.pair_uniform_to_normal(zero, zero)
    tl.store(out, first)
    tl.store(out + 1, second)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("tl.rand(x, at)", "the seed of random numbers is an integer"),
        ("tl.randint(2.5, at)", "the seed of random numbers is an integer"),
        ("tl.philox(1, at.to(tl.int16), 0, 0, 0)[0]", "counters of random numbers have 32 or 64 bits"),
    ],
)
def test_what_is_no_seed_or_counter_is_refused(call: str, message: str) -> None:
    with pytest.raises(CompilationError, match=message) as caught:
        compile_kernel(kernel(f"at = tl.arange(0, 8)\ntl.store(x + at, {call})", "x"), x="*fp32")
    assert caught.value.location.line == 4
