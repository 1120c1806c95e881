"""Launches of machine operations that few kernels need: PTX of a kernel's author, boxes of every rank, tensor cores' rarer formats."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch, fresh
from tests.backends.cuda.product_cases import E4M3, E5M2, small_floats

N = 128


@kp.jit
def assembled(x, y, out, COUNT: tl.constexpr, PTX: tl.constexpr, CONSTRAINTS: tl.constexpr):
    at = tl.arange(0, COUNT)
    kind: tl.constexpr = out.dtype.element_ty
    tl.store(out + at, tl.inline_asm_elementwise(PTX, CONSTRAINTS, [tl.load(x + at), tl.load(y + at)], kind, True, 1))


@kp.jit
def boxes(x, out, SIZES: tl.constexpr, STRIDES: tl.constexpr, BLOCK: tl.constexpr):
    """Copies the box at the tensor's second half along its first axis to its beginning."""
    source = tl.make_tensor_descriptor(x, SIZES, STRIDES, BLOCK)
    target = tl.make_tensor_descriptor(out, SIZES, STRIDES, BLOCK)
    rest: tl.constexpr = [0] * (len(BLOCK) - 1)
    target.store([0, *rest], source.load([BLOCK[0], *rest]))


@kp.jit
def boxes_of_programs(x, out, SIZES: tl.constexpr, STRIDES: tl.constexpr, BLOCK: tl.constexpr):
    """The same for two tensors, one after the other, whose tensor maps the kernel makes, box by box of their first halves. Each is loaded
    three times, in a loop that can run ahead."""
    after = tl.program_id(0) * SIZES[0] * STRIDES[0]
    source = tl.make_tensor_descriptor(x + after, SIZES, STRIDES, BLOCK)
    target = tl.make_tensor_descriptor(out + after, SIZES, STRIDES, BLOCK)
    rest: tl.constexpr = [0] * (len(BLOCK) - 1)
    for at in range(0, SIZES[0] // 2, BLOCK[0]):
        box = source.load([at, *rest])
        for again in range(2):
            box = source.load([SIZES[0] // 2 * again + at, *rest])
        target.store([at, *rest], box)


@kp.jit
def half_sums(a, b, out, SIZE: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, SIZE), tl.arange(0, K)
    left, right = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * SIZE + i[None, :])
    tl.store(out + i[:, None] * SIZE + i[None, :], tl.dot(left, right, out_dtype=tl.float16))


def _assembled(
    ptx: str, constraints: str, x: torch.Tensor, y: torch.Tensor, expected: torch.Tensor, tolerance: float = 0.0
) -> Launch:
    arguments = {"x": x, "y": y, "out": fresh(N, dtype=expected.dtype), "COUNT": N, "PTX": ptx, "CONSTRAINTS": constraints}
    return Launch(assembled, (1,), arguments, {"out": expected}, tolerance, Options(num_warps=N // 32))


def _shuffle(mode: str) -> Launch:
    x, lane = torch.randint(-(2**31), 2**31 - 1, (N,), dtype=torch.int32), torch.arange(N) % 32
    clamp = 0 if mode == "up" else 31
    other = {"bfly": lane ^ 3, "up": lane - 3, "down": lane + 3, "idx": torch.full((N,), 3)}[mode]
    inside = (other >= 0) & (other < 32)
    expected = x[torch.arange(N) - lane + torch.where(inside, other, lane)]
    return _assembled(f"shfl.sync.{mode}.b32 $0, $1, 3, {clamp}, -1;", "=r,r,r", x, x, expected)


def _vote(mode: str) -> Launch:
    x = torch.zeros(N, dtype=torch.int32)
    x[37], x[64:96] = 1, 1  # of four warps: none, one, all, none
    warps = (x != 0).view(-1, 32)
    counted = {
        "any": warps.any(1), "all": warps.all(1), "uni": warps.all(1) | ~warps.any(1),
        "ballot": (warps * 2 ** torch.arange(32)).sum(1),
    }[mode].to(torch.int64)  # fmt: skip
    expected = torch.where(counted >= 2**31, counted - 2**32, counted).int().repeat_interleave(32)
    vote = "vote.sync.ballot.b32 $0, p, -1;" if mode == "ballot" else f"vote.sync.{mode}.pred q, p, -1;\nselp.s32 $0, 1, 0, q;"
    return _assembled(f"{{\n.reg .pred p, q;\nsetp.ne.s32 p, $1, 0;\n{vote}\n}}", "=r,r,r", x, x, expected)


def _elect() -> Launch:
    """One lane of each warp."""
    x = torch.zeros(N, dtype=torch.int32)
    text = "{\n.reg .pred p;\nelect.sync _|p, -1;\nselp.s32 $0, 1, 0, p;\n}"
    return _assembled(text, "=r,r,r", x, x, (torch.arange(N) % 32 == 0).int())


_APPROXIMATE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float, float]] = {
    "ex2": (torch.exp2, -20, 20, 2**-22), "lg2": (torch.log2, 3, 1000, 2**-22), "rcp": (torch.reciprocal, 1e-3, 1e3, 2**-23),
    "rsqrt": (torch.rsqrt, 1e-3, 1e3, 2**-22.9), "sin": (torch.sin, 0.4, 2.7, 2**-19), "cos": (torch.cos, -1.2, 1.2, 2**-19),
    "tanh": (torch.tanh, -4, 4, 2**-10.9),
}  # fmt: skip
"""What they approximate, from where to where, and how well (PTX ISA)."""


def _approximate(name: str, more: str) -> Launch:
    function, low, high, error = _APPROXIMATE[name]
    x = torch.linspace(low, high, N)
    return _assembled(f"{name}.approx{more}.f32 $0, $1;", "=f,f,f", x, x, function(x.double()).float(), error)


def _flushed() -> Launch:
    """The square roots' reciprocals of subnormal numbers, which count as zero."""
    x = torch.full((N,), 2.0**-130)
    return _assembled("rsqrt.approx.ftz.f32 $0, $1;", "=f,f,f", x, x, torch.full((N,), math.inf))


def _divide(name: str) -> Launch:
    x, y = torch.randn(N), torch.rand(N) + 0.1
    return _assembled(f"div.{name}.f32 $0, $1, $2;", "=f,f,f", x, y, (x.double() / y).float(), 2**-22)


def _pair(kind: str, dtype: torch.dtype) -> Launch:
    x, y = torch.randn(N), torch.randn(N)
    expected = torch.stack([y.to(dtype), x.to(dtype)], 1).view(torch.int32).view(-1)  # the first operand is the upper half
    return _assembled(f"cvt.rn.{kind}x2.f32 $0, $1, $2;", "=r,f,f", x, y, expected)


def _toward_zero(kind: str, dtype: torch.dtype) -> Launch:
    x = torch.randn(N)
    near = x.to(dtype)
    cut = torch.where(near.double().abs() > x.double().abs(), near.view(torch.int16) - 1, near.view(torch.int16))
    return _assembled(f"cvt.rz.{kind}.f32 $0, $1;", "=h,f,f", x, x, cut)


def _few_bits(kind: str, low: int, high: int) -> Launch:
    x = torch.randn(N) * high
    x[:3] = torch.tensor([math.nan, math.inf, -math.inf])
    return _assembled(f"cvt.rzi.{kind}.f32 $0, $1;", "=r,f,f", x, x, x.nan_to_num().clamp(low, high).int())


def _tf32() -> Launch:
    x = torch.randn(N)
    return _assembled("cvt.rna.tf32.f32 $0, $1;", "=r,f,f", x, x, (x.view(torch.int32) + 0x1000) & ~0x1FFF)


def _words(low: int = -(2**31), high: int = 2**31 - 1) -> torch.Tensor:
    return torch.randint(low, high, (N,), dtype=torch.int32)


def _shift(name: str) -> Launch:
    """By 0 to 39 bits: from 32 on nothing is left but the sign."""
    x, by = _words(), _words(0, 40)
    unsigned, wide = x.long() & 0xFFFFFFFF, by.long()
    shifted = {"shl.b32": unsigned << wide, "shr.u32": unsigned >> wide, "shr.s32": x.long() >> wide}[name]
    return _assembled(f"{name} $0, $1, $2;", "=r,r,r", x, by, shifted.int())


def _product(name: str, bits: int) -> Launch:
    """What a product of two words has above 32 bits, or all of it."""
    x, y = _words(), _words()
    signed = name.endswith("s32")
    factors = [[value if signed else value % 2**32 for value in words.tolist()] for words in (x, y)]
    products = [a * b >> (32 if bits == 32 else 0) for a, b in zip(*factors, strict=True)]
    expected = torch.tensor([(value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for value in products])
    constraints = "=r,r,r" if bits == 32 else "=l,r,r"
    return _assembled(f"{name} $0, $1, $2;", constraints, x, y, expected.to(torch.int32 if bits == 32 else torch.int64))


def _chosen_bits() -> Launch:
    """`(a & ~b) ^ c` of two words and their sum."""
    x, y = _words(), _words()
    expected = (x & ~y) ^ (x.long() + y).int()
    return _assembled("{\n.reg .b32 c;\nadd.s32 c, $1, $2;\nlop3.b32 $0, $1, $2, c, 0x9A;\n}", "=r,r,r", x, y, expected)


def _permuted() -> Launch:
    """The second byte of b, the first of a, the sign of a's last, and the last of b."""
    x, y = _words(), _words()
    a, b = x.view(torch.uint8).view(N, 4), y.view(torch.uint8).view(N, 4)
    sign = torch.where(a[:, 3] >= 128, 255, 0).to(torch.uint8)
    expected = torch.stack([b[:, 1], a[:, 0], sign, b[:, 3]], 1).view(torch.int32).view(-1)
    return _assembled("prmt.b32 $0, $1, $2, 0x7B05;", "=r,r,r", x, y, expected)


def _scopes() -> Launch:
    """The halves of a changed about, the bytes of that turned round, and b added after both scopes."""
    x, y = _words(), _words()
    halves = "{\n.reg .b16 part<2>;\nmov.b32 {part0, part1}, $1;\nmov.b32 $0, {part1, part0};\n}"
    octets = "{\n.reg .b8 part<4>;\nmov.b32 {part0, part1, part2, part3}, $0;\nmov.b32 $0, {part3, part2, part1, part0};\n}"
    turned = x.view(torch.uint8).view(N, 4)[:, [1, 0, 3, 2]].contiguous().view(torch.int32).view(-1)
    return _assembled(f"{halves}\n{octets}\nadd.s32 $0, $0, $2;", "=&r,r,r", x, y, (turned.long() + y).int())


def _boxes(*sizes: int) -> Launch:
    x = torch.randn(sizes)
    block = (sizes[0] // 2, *sizes[1:])
    out = torch.full(sizes, 7.0)
    expected = out.clone()
    expected[: block[0]] = x[block[0] :]
    return Launch(boxes, (1,), {"x": x, "out": out, "SIZES": sizes, "STRIDES": x.stride(), "BLOCK": block}, {"out": expected})


def _boxes_of_programs(dtype: torch.dtype, *sizes: int) -> Launch:
    x = (torch.randn(2, *sizes) * 50).to(dtype)
    block = (sizes[0] // 4, *sizes[1:])
    out = torch.full_like(x, 7)
    expected = out.clone()
    expected[:, : sizes[0] // 2] = x[:, sizes[0] // 2 :]
    arguments = {"x": x, "out": out, "SIZES": sizes, "STRIDES": x.stride()[1:], "BLOCK": block}
    return Launch(boxes_of_programs, (2,), arguments, {"out": expected})


def _half_sums() -> Launch:
    a, b = torch.randn(16, 64).half(), torch.randn(64, 16).half()
    arguments = {"a": a, "b": b, "out": fresh(16, 16, dtype=torch.float16), "SIZE": 16, "K": 64}
    return Launch(half_sums, (1,), arguments, {"out": a.double() @ b.double()}, 2**-8, Options(num_warps=1))


def _launches() -> Iterator[tuple[str, Callable[[], Launch]]]:
    for mode in ("bfly", "up", "down", "idx"):
        yield f"asm-shfl-{mode}", functools.partial(_shuffle, mode)
    for mode in ("any", "all", "uni", "ballot"):
        yield f"asm-vote-{mode}", functools.partial(_vote, mode)
    yield "asm-elect", _elect
    for name in _APPROXIMATE:
        yield f"asm-{name}", functools.partial(_approximate, name, "")
        if name != "tanh":
            yield f"asm-{name}-ftz", functools.partial(_approximate, name, ".ftz")
    yield "asm-subnormal", _flushed
    for name in ("approx", "full", "approx.ftz", "full.ftz"):
        yield f"asm-div-{name}", functools.partial(_divide, name)
    for kind, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        yield f"asm-{kind}x2", functools.partial(_pair, kind, dtype)
        yield f"asm-{kind}-rz", functools.partial(_toward_zero, kind, dtype)
    for kind, low, high in (("s8", -128, 127), ("u8", 0, 255), ("s16", -(1 << 15), (1 << 15) - 1), ("u16", 0, (1 << 16) - 1)):
        yield f"asm-{kind}-rzi", functools.partial(_few_bits, kind, low, high)
    yield "asm-tf32", _tf32
    for name in ("shl.b32", "shr.u32", "shr.s32"):
        yield f"asm-{name}", functools.partial(_shift, name)
    for name, bits in (("mul.hi.s32", 32), ("mul.hi.u32", 32), ("mul.wide.s32", 64), ("mul.wide.u32", 64)):
        yield f"asm-{name}", functools.partial(_product, name, bits)
    yield "asm-lop3", _chosen_bits
    yield "asm-prmt", _permuted
    yield "asm-scopes", _scopes
    for sizes in ((128,), (8, 4, 16), (4, 2, 4, 16), (4, 2, 2, 2, 16)):
        yield f"boxes-{len(sizes)}d", functools.partial(_boxes, *sizes)
    for sizes in ((256,), (8, 128), (8, 4, 16), (4, 2, 4, 16), (4, 2, 2, 2, 16)):
        yield f"made-boxes-{len(sizes)}d", functools.partial(_boxes_of_programs, torch.float32, *sizes)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64, E4M3, E5M2):
        yield f"made-boxes-{str(dtype).removeprefix('torch.')}", functools.partial(_boxes_of_programs, dtype, 32, 64)
    yield "half-sums", _half_sums


INSTRUCTIONS = dict(_launches())
"""For sm_90a."""
ADA = {
    "e4m3-sm_89": functools.partial(small_floats, E4M3, E4M3, "c", None),
    "e5m2-sm_89": functools.partial(small_floats, E5M2, E5M2, "r", None),
}
"""For sm_89, whose PTX is assembled for the GPU."""
