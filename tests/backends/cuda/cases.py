"""The table of launches that the CUDA backend is held to, on the emulator and on a GPU, each with what torch computes."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import kernelpack.language as tl
from kernelpack.backends.base import Options
from tests.backends.cuda import kernels
from tests.backends.cuda.launch import Launch as Launch
from tests.backends.cuda.launch import fresh
from tests.backends.cuda.tile_cases import TILE_LAUNCHES
from tests.frontend import kernels as idioms

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Case:
    """A named launch, made when it is needed. What is `small` takes the emulator less than a second or so."""

    name: str
    make: Callable[[], Launch]
    small: bool = True

    def launch(self) -> Launch:
        torch.manual_seed(zlib.crc32(self.name.encode()))
        return self.make()


def cases() -> list[Case]:
    """Returns every case; names are unique."""
    return list({case.name: case for source in _SOURCES for case in source()}.values())


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(*shape).to(dtype)
    return torch.randint(-50, 50, shape).to(dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_EPSILON = {torch.float64: 1e-13, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


# ---- memory and arithmetic ----


def _vector_add(dtype: torch.dtype, n: int, shift: int, num_warps: int) -> Launch:
    x, y = (_random(n + shift, dtype=dtype)[shift:] for _ in range(2))
    out = fresh(n + shift, dtype=dtype)[shift:]
    return Launch(
        idioms.vector_add, (-(-n // 512),), {"x_ptr": x, "y_ptr": y, "out_ptr": out, "n": n, "BLOCK": 512},
        {"out_ptr": x + y}, options=Options(num_warps=num_warps),
    )  # fmt: skip


def _copy(dtype: torch.dtype, order: str, m: int, n: int, bm: int, bn: int, num_warps: int) -> Launch:
    x = _random(m, n, dtype=dtype) if order[0] == "r" else _random(n, m, dtype=dtype).T
    out = fresh(m + 1, n + 1, dtype=dtype) if order[1] == "r" else fresh(n + 1, m + 1, dtype=dtype).T
    arguments = {"x": x, "out": out, "M": m, "N": n, "BM": bm, "BN": bn, "OTHER": 7}
    arguments |= dict(zip(("sxm", "sxn", "som", "son"), (*x.stride(), *out.stride()), strict=True))
    grid = (-(-(m + 1) // bm), -(-(n + 1) // bn))
    expected = F.pad(x.double(), (0, 1, 0, 1), value=7).to(dtype)
    return Launch(kernels.copy_2d, grid, arguments, {"out": expected}, options=Options(num_warps=num_warps))


def _transpose(dtype: torch.dtype, m: int, n: int) -> Launch:
    x = _random(m, n, dtype=dtype)
    return Launch(kernels.transpose, (1,), {"x": x, "out": fresh(n, m, dtype=dtype), "M": m, "N": n}, {"out": x.T.contiguous()})


def _rearrange(dtype: torch.dtype, a: int, b: int, c: int, num_warps: int) -> Launch:
    x = _random(a, b, c, dtype=dtype)
    swapped = x.reshape(a * b, c // 2, 2).flip(-1).reshape(a, b, c)
    arguments = {"x": x, "out": fresh(c, b, a, dtype=dtype), "A": a, "B": b, "C": c}
    expected = swapped.permute(2, 1, 0).contiguous()
    return Launch(kernels.rearrange, (1,), arguments, {"out": expected}, options=Options(num_warps=num_warps))


def _integers(dtype: torch.dtype, first: int) -> Launch:
    n = 700
    x, y = _random(n, dtype=dtype), _random(n, dtype=dtype)
    y[y == 0] = 3
    x[0] = first
    a, b = x, y
    quotient = torch.div(a, b, rounding_mode="trunc")
    result = quotient * 3 + torch.fmod(a, b) + ((a & 15) ^ (b | 1)) + (a >> 2) + ~b
    if first > 0:
        for k in range(first % 5 + 1):
            result = result + k * a
    else:
        result = result - b
    expected = torch.where(a > b, result, result.clamp(max=1000))
    arguments = {"x": x, "y": y, "out": fresh(n, dtype=dtype), "n": n, "B": 256}
    return Launch(kernels.integer_mix, (3,), arguments, {"out": expected})


def _memory_cases() -> Iterator[Case]:
    for dtype in (*FLOATS, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64):
        yield Case(f"add-{_name(dtype)}", functools.partial(_vector_add, dtype, 1100, 0, 4))
    for num_warps in (1, 2, 8):
        yield Case(f"add-unaligned-{num_warps}", functools.partial(_vector_add, torch.bfloat16, 1025, 1, num_warps))
    for order in ("rr", "rc", "cr", "cc"):
        for dtype in (torch.float32, torch.bfloat16, torch.int8):
            make = functools.partial(_copy, dtype, order, 45, 70, 32, 32, 4)
            yield Case(f"copy-{order}-{_name(dtype)}", make)
    for num_warps, bm, bn in ((1, 16, 64), (2, 1, 128), (8, 64, 1), (8, 64, 64)):
        make = functools.partial(_copy, torch.float16, "rc", 64, 96, bm, bn, num_warps)
        yield Case(f"copy-{bm}x{bn}-{num_warps}", make)
    for dtype, m, n in ((torch.float32, 64, 32), (torch.bfloat16, 16, 128), (torch.float64, 32, 32), (torch.int8, 64, 64)):
        yield Case(f"transpose-{_name(dtype)}-{m}x{n}", functools.partial(_transpose, dtype, m, n))
    for dtype, a, b, c, num_warps in ((torch.float32, 8, 4, 16, 4), (torch.float16, 2, 32, 8, 1), (torch.int32, 16, 16, 2, 8)):
        yield Case(f"rearrange-{a}x{b}x{c}-{num_warps}", functools.partial(_rearrange, dtype, a, b, c, num_warps))
    for dtype, first in ((torch.int32, 9), (torch.int64, -2), (torch.int32, 0)):
        yield Case(f"integers-{_name(dtype)}-{first}", functools.partial(_integers, dtype, first))


# ---- reductions and scans ----


def _reduce(dtype: torch.dtype, kind: str, axis: int | None, m: int, n: int, bm: int, bn: int, num_warps: int) -> Launch:
    x = _random(m, n, dtype=dtype)
    wide = x.double() if dtype.is_floating_point else x.long()
    padded = F.pad(wide, (0, bn - n, 0, bm - m))
    compute = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[kind]
    expected = compute(padded, dim=(0, 1) if axis is None else axis)
    expected = expected.reshape(1) if axis is None else expected[: n if axis == 0 else m]
    # as the language has it: integers narrower than 32 bits are summed in 32
    result = torch.int32 if kind == "sum" and dtype in (torch.int8, torch.int16) else dtype
    arguments = {"x": x, "out": fresh(*expected.shape, dtype=result), "M": m, "N": n, "sm": n, "BM": bm, "BN": bn}
    tolerance = _EPSILON[dtype] if kind == "sum" and dtype.is_floating_point else 0.0
    return Launch(
        kernels.reduce_2d, (1,), arguments | {"AXIS": axis, "KIND": kind}, {"out": expected}, tolerance, Options(num_warps=num_warps)
    )  # fmt: skip


def _scan(m: int, n: int, axis: int, reverse: bool, num_warps: int, dtype: torch.dtype = torch.float32) -> Launch:
    x = _random(m, n) if dtype == torch.float32 else _random(m, n, dtype=torch.int32).to(dtype)  # halves: sums are exact
    wide = x.double().flip(axis) if reverse else x.double()
    total = wide.cumsum(axis)
    arguments = {"x": x, "out": fresh(m, n, dtype=dtype), "M": m, "N": n, "AXIS": axis, "REVERSE": reverse}
    expected = {"out": total.flip(axis) if reverse else total}
    return Launch(kernels.scan_2d, (1,), arguments, expected, 1e-6, Options(num_warps=num_warps))


def _normalise(dtype: torch.dtype, rows: int, n: int, bm: int, bn: int, num_warps: int) -> Launch:
    x, w, b = _random(rows, n, dtype=dtype), _random(n, dtype=dtype), _random(n, dtype=dtype)
    expected = F.layer_norm(x.double(), (n,), w.double(), b.double(), 1e-5)
    arguments = {"x": x, "weight": w, "bias": b, "out": fresh(rows, n, dtype=dtype), "rows": rows, "n": n, "stride": n}
    return Launch(
        kernels.normalise_rows, (-(-rows // bm),), arguments | {"BM": bm, "BN": bn}, {"out": expected}, _EPSILON[dtype],
        Options(num_warps=num_warps),
    )  # fmt: skip


def _softmax(dtype: torch.dtype, n: int, block: int, num_warps: int) -> Launch:
    x = _random(5, n, dtype=dtype)
    x[1, 3] = float("inf") if n == 77 else 60.0
    x[2] = -float("inf") if n == 77 else x[2]
    arguments = {"x": x, "out": fresh(5, n, dtype=dtype), "stride": n, "n": n, "B": block}
    return Launch(
        kernels.softmax_row, (5,), arguments, {"out": x.double().softmax(-1)}, _EPSILON[dtype], Options(num_warps=num_warps)
    )


def _reduction_cases() -> Iterator[Case]:
    for num_warps in (1, 4, 8):
        for axis in (0, 1, None):
            for kind, m, n, bm, bn in (("sum", 30, 50, 32, 64), ("max", 64, 2, 64, 2), ("min", 3, 500, 4, 512)):
                make = functools.partial(_reduce, torch.float32, kind, axis, m, n, bm, bn, num_warps)
                yield Case(f"{kind}-{axis}-{m}x{n}-{num_warps}", make)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int64):
        for kind, axis in (("sum", 1), ("max", 0)):
            make = functools.partial(_reduce, dtype, kind, axis, 20, 40, 32, 64, 4)
            yield Case(f"{kind}-{axis}-{_name(dtype)}", make)
    for num_warps in (1, 4):
        for m, n in ((4, 64), (64, 8), (1, 1024), (512, 2)):
            for axis in (0, 1):
                reverse = (m + axis) % 3 == 0
                yield Case(
                    f"scan-{axis}-{m}x{n}-{num_warps}{'-reverse' if reverse else ''}",
                    functools.partial(_scan, m, n, axis, reverse, num_warps),
                )
    # two rows a warp in a buffer that is swizzled for columns: no matrix of stmatrix begins at 16 bytes
    yield Case("scan-0-32x32-16-fp16", functools.partial(_scan, 32, 32, 0, False, 16, torch.float16))
    for dtype, bm, num_warps in ((torch.float32, 1, 4), (torch.float16, 4, 8), (torch.bfloat16, 16, 1), (torch.bfloat16, 2, 2)):
        make = functools.partial(_normalise, dtype, 20, 300, bm, 512, num_warps)
        yield Case(f"normalise-{_name(dtype)}-{bm}-{num_warps}", make)
    for dtype, n, block, num_warps in (
        (torch.float32, 1000, 1024, 4), (torch.float16, 77, 128, 1), (torch.bfloat16, 64, 64, 8), (torch.float32, 2000, 2048, 2),
    ):  # fmt: skip
        yield Case(f"softmax-{_name(dtype)}-{n}-{num_warps}", functools.partial(_softmax, dtype, n, block, num_warps))


# ---- atomics ----


def _histogram(dtype: torch.dtype, n: int, block: int) -> Launch:
    x = _random(n, dtype=dtype)
    expected = torch.zeros(7, dtype=torch.float64).index_add_(0, torch.arange(n) % block % 7, x.double())
    at = torch.arange(n) // block * block + torch.arange(n) % block
    expected = torch.zeros(7, dtype=torch.float64).index_add_(0, at % 7, x.double())
    arguments = {"x": x, "out": torch.zeros(7, dtype=dtype), "n": n, "BINS": 7, "B": block}
    tolerance = 1e-5 if dtype.is_floating_point else 0.0
    return Launch(kernels.histogram, (-(-n // block),), arguments, {"out": expected}, tolerance)


def _tickets() -> Launch:
    seen = torch.zeros(64, dtype=torch.int32)
    expected = seen.clone()
    expected[:16] = 20
    expected[16:36] = 16
    arguments = {"counter": torch.zeros(1, dtype=torch.int32), "out": fresh(20, dtype=torch.int32), "seen": seen}
    done = {"counter": torch.tensor([20]), "out": torch.arange(20), "seen": expected}
    return Launch(kernels.tickets, (20,), arguments, done)


def _atomic_cases() -> Iterator[Case]:
    for dtype, n, block in (
        (torch.int32, 700, 256),
        (torch.float32, 700, 256),
        (torch.float32, 30, 16),
        (torch.float64, 200, 64),
    ):
        yield Case(f"histogram-{_name(dtype)}-{n}", functools.partial(_histogram, dtype, n, block))
    yield Case("tickets", _tickets)


# ---- products ----

_LANGUAGE = {torch.float32: tl.float32, torch.float64: tl.float64, torch.float16: tl.float16, torch.int32: tl.int32}


@dataclass(frozen=True)
class Product:
    """A matrix product. `order` gives A's and B's storage: r for rows, c for columns."""

    dtype: torch.dtype = torch.bfloat16
    shape: tuple[int, int, int] = (100, 72, 80)
    block: tuple[int, int, int] = (64, 64, 32)
    order: str = "rr"
    precision: str = "ieee"
    num_warps: int = 4
    num_stages: int = 2
    acc: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        sizes = ["x".join(map(str, sizes)) for sizes in (self.shape, self.block)]
        kind = (_name(self.dtype), _name(self.acc), *sizes, self.order, self.precision, self.num_warps, self.num_stages)
        return "-".join(map(str, ("matmul", *kind)))

    def launch(self) -> Launch:
        (m, n, k), (bm, bn, bk) = self.shape, self.block
        a = _random(m, k, dtype=self.dtype) if self.order[0] == "r" else _random(k, m, dtype=self.dtype).T
        b = _random(k, n, dtype=self.dtype) if self.order[1] == "r" else _random(n, k, dtype=self.dtype).T
        out = self.acc if self.dtype == torch.int8 else self.dtype
        c = fresh(m, n, dtype=out)
        arguments: dict[str, Any] = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k, "BM": bm, "BN": bn, "BK": bk}
        strides = ("sam", "sak", "sbk", "sbn", "scm", "scn")
        arguments |= dict(zip(strides, (*a.stride(), *b.stride(), *c.stride()), strict=True))
        arguments |= {"PRECISION": self.precision, "ACC": _LANGUAGE[self.acc]}
        tolerance = {torch.int8: 0.0, torch.float32: 1e-3 if self.precision == "tf32" else 3e-6}.get(self.dtype)
        return Launch(
            kernels.matmul, (-(-m // bm), -(-n // bn)), arguments, {"c": a.double() @ b.double()},
            _EPSILON[self.dtype] if tolerance is None else tolerance,
            Options(num_warps=self.num_warps, num_stages=self.num_stages),
        )  # fmt: skip


def _products() -> Iterator[tuple[Product, bool]]:
    for dtype in (torch.bfloat16, torch.float16):
        for order in ("rr", "rc", "cr", "cc"):
            yield Product(dtype, order=order), True
    for order in ("rr", "rc", "cr", "cc"):
        yield Product(torch.float32, order=order, precision="tf32", shape=(64, 64, 64), block=(32, 32, 32)), True
        yield Product(torch.float32, order=order, shape=(64, 64, 64), block=(32, 32, 32)), True
        yield Product(torch.int8, order=order, acc=torch.int32, block=(32, 32, 64)), True
    yield Product(torch.float32, precision="tf32x3"), True
    yield Product(torch.float16, acc=torch.float16), True
    yield Product(torch.float64, acc=torch.float64, block=(32, 32, 16)), True
    for num_warps in (1, 2, 4, 8):
        yield Product(block=(64, 32, 64), num_warps=num_warps, num_stages=3), True
        yield Product(torch.float32, block=(32, 32, 16), num_warps=num_warps, num_stages=3), num_warps < 8
        yield Product(torch.float16, (300, 260, 200), (128, 128, 32), "rc", num_warps=num_warps), False
    for num_stages in (1, 2, 3, 4):
        yield Product(num_stages=num_stages, shape=(64, 64, 200)), True
        yield Product(torch.float32, (64, 64, 72), (32, 64, 16), precision="tf32", num_stages=num_stages), True
        yield Product(torch.bfloat16, (513, 257, 1000), (128, 64, 64), "cr", num_stages=num_stages, num_warps=8), False
    for block in ((16, 16, 16), (16, 128, 64), (128, 16, 16), (256, 64, 32), (64, 256, 32), (32, 8, 16)):
        yield Product(shape=(257, 300, 130), block=block, num_warps=4), False
        yield Product(torch.float16, shape=(40, 60, 70), block=block, order="rc", num_warps=2), block[0] * block[1] < 4096
    yield Product(shape=(1, 1, 1)), True
    yield from warpgroup_products()
    yield Product(torch.bfloat16, (1024, 1024, 1024), (128, 128, 64), num_warps=8, num_stages=3), False


def warpgroup_products() -> Iterator[tuple[Product, bool]]:
    """Tiles that wgmma computes where there is one: both majors, every swizzle, warpgroups along rows and columns."""
    f16, bf16, f32, i8 = torch.float16, torch.bfloat16, torch.float32, torch.int8
    for order in ("rr", "rc", "cr", "cc"):
        yield Product(bf16, (208, 272, 144), (128, 128, 64), order, num_stages=3), False
        yield Product(bf16, (72, 96, 80), (64, 64, 16), order), True
        yield Product(f16, (128, 80, 64), (64, 32, 32), order, num_stages=3), True
        yield Product(f16, (128, 80, 64), (64, 16, 64), order, num_stages=1), True
    for order in ("rr", "rc"):
        yield Product(bf16, (272, 528, 336), (128, 256, 64), order, num_warps=8, num_stages=3), False
        yield Product(bf16, (528, 144, 336), (256, 128, 64), order, num_warps=8, num_stages=4), False
        yield Product(bf16, (80, 272, 144), (64, 256, 64), order, num_warps=8, num_stages=3), False
        yield Product(f16, (272, 528, 144), (128, 256, 32), order, num_warps=16, num_stages=2), False
    for shape, block in (((72, 80, 64), (64, 64, 32)), ((136, 72, 256), (128, 64, 64))):
        yield Product(f32, shape, block, "rc", "tf32"), block[0] == 64
        yield Product(i8, shape, block, "rc", acc=torch.int32), block[0] == 64
    yield Product(f16, (128, 80, 64), (64, 32, 32), "rc", num_stages=3, acc=f16), True


def _gated() -> Launch:
    a, b, gate = (_random(*shape, dtype=torch.bfloat16) for shape in ((64, 128), (128, 64), (128, 64)))
    arguments = {"a": a, "b": b, "gate": gate, "out": fresh(64, 64), "K": 128, "M": 64, "N": 64, "BK": 32}
    expected = (a.double() @ b.double()).relu() * (a.double() @ gate.double())
    return Launch(kernels.gated_product, (1,), arguments, {"out": expected}, 3e-6, Options(num_stages=3))


def _changing() -> Launch:
    a, b = _random(64, 192, dtype=torch.float16), _random(64, 64, dtype=torch.float16)
    expected = sum(a[:, 64 * step : 64 * step + 64].double() @ b.double() * 2**step for step in range(3))
    arguments = {"a": a, "b": b, "out": fresh(64, 64), "K": 192, "N": 64}
    return Launch(kernels.product_of_changing_tile, (1,), arguments, {"out": torch.as_tensor(expected)}, 3e-6)


def _small_integers(a_is_small: bool) -> Launch:
    a, b = _random(64, 128, dtype=torch.bfloat16), _random(128, 64, dtype=torch.bfloat16)
    small = torch.randint(-128, 128, (128, 64), dtype=torch.int8)
    a, b = (small.T.contiguous(), b) if a_is_small else (a, small)
    arguments = {"a": a, "b": b, "out": fresh(64, 64), "K": 128, "M": 64, "N": 64, "BK": 32, "A_IS_SMALL": a_is_small}
    return Launch(kernels.product_of_small_integers, (1,), arguments, {"out": a.double() @ b.double()}, 3e-6)


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def small_floats(a: torch.dtype, b: torch.dtype, order: str, limit: int | None, flip: bool = False) -> Launch:
    x, y = torch.randn(64, 256).to(a), torch.randn(64, 256).to(b)
    y = y.T if order == "c" else y.T.contiguous()
    arguments = {"a": x, "b": y, "out": fresh(64, 64), "K": 256, "sbk": y.stride(0), "sbn": y.stride(1), "M": 64, "N": 64}
    expected = (x.double() @ y.double()) * (-1 if flip else 1)
    return Launch(
        kernels.product_of_small_floats, (1,), arguments | {"BK": 128, "LIMIT": limit, "FLIP": flip}, {"out": expected}, 2e-3,
        Options(num_stages=2),
    )  # fmt: skip


WARPGROUP_IDIOMS: dict[str, Callable[[], Launch]] = {
    "gated-product": _gated,
    "product-of-changing-tile": _changing,
    "product-e4m3": functools.partial(small_floats, E4M3, E4M3, "c", None),
    "product-e5m2-e4m3-rows": functools.partial(small_floats, E5M2, E4M3, "r", None),
    "product-e4m3-e5m2-limited": functools.partial(small_floats, E4M3, E5M2, "c", 64, True),
    "product-of-small-a": functools.partial(_small_integers, True),
    "product-of-small-b": functools.partial(_small_integers, False),
}


def _batched(dtype: torch.dtype, batch: int, m: int, n: int, k: int, nested: bool = False) -> Launch:
    a, b = _random(batch, m, k, dtype=dtype), _random(batch, k, n, dtype=dtype)
    arguments = {"a": a, "b": b, "c": fresh(batch, m, n), "BATCH": batch, "M": m, "N": n, "K": k, "NESTED": nested}
    return Launch(kernels.batched_dot, (1,), arguments, {"c": a.double() @ b.double()}, 3e-6)


@dataclass(frozen=True)
class Attention:
    dtype: torch.dtype = torch.bfloat16
    heads: int = 2
    queries: int = 100
    keys: int = 90
    dim: int = 64
    block: tuple[int, int] = (64, 32)
    causal: bool = False
    mask: str | None = None
    num_warps: int = 4
    num_stages: int = 2

    @property
    def name(self) -> str:
        sizes = f"{self.heads}x{self.queries}x{self.keys}x{self.dim}-{self.block[0]}x{self.block[1]}"
        kind = ("causal" if self.causal else "full") + (f"-{self.mask}" if self.mask else "")
        return f"attention-{_name(self.dtype)}-{sizes}-{kind}-{self.num_warps}-{self.num_stages}"

    def launch(self) -> Launch:
        q, k, v = (_random(self.heads, n, self.dim, dtype=self.dtype) for n in (self.queries, self.keys, self.keys))
        out = fresh(self.heads, self.queries, self.dim, dtype=self.dtype)
        mask = None
        if self.mask == "float":
            mask = _random(self.queries, self.keys)
            mask[3] = -float("inf")
            mask[:, ::7] = -float("inf")
        bm, bn = self.block
        padded = 1 << (self.dim - 1).bit_length()
        scale = self.dim**-0.5
        arguments = {
            "q": q, "k": k, "v": v, "out": out, "mask": mask, "M": self.queries, "N": self.keys, "D": self.dim,
            "scale": scale * LOG2_E, "smm": self.keys, "BM": bm, "BN": bn, "HEAD_DIM": padded, "CAUSAL": self.causal,
        }  # fmt: skip
        for name, tensor in (("q", q), ("k", k), ("o", out)):
            arguments |= {f"s{name}h": tensor.stride(0), f"s{name}{'n' if name == 'k' else 'm'}": tensor.stride(1)}
        scores = q.double() @ k.double().transpose(1, 2) * scale
        if self.causal:
            scores = scores.masked_fill(~torch.ones(self.queries, self.keys).tril().bool(), -float("inf"))
        if mask is not None:
            scores = scores + mask.double()
        expected = scores.softmax(-1).nan_to_num(0.0) @ v.double()
        tolerance = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[self.dtype]
        return Launch(
            kernels.attention, (-(-self.queries // bm), self.heads), arguments, {"out": expected}, tolerance,
            Options(num_warps=self.num_warps, num_stages=self.num_stages),
        )  # fmt: skip


def _attentions() -> Iterator[tuple[Attention, bool]]:
    for dtype in FLOATS:
        for causal in (False, True):
            yield Attention(dtype, dim=32, causal=causal), True
            yield Attention(dtype, 3, 513, 700, 64, (64, 64), causal, num_warps=4), False
        yield Attention(dtype, dim=32, mask="float"), True
    yield Attention(dim=24, block=(16, 16)), True
    yield Attention(torch.float16, 1, 64, 64, 128, (64, 32), num_warps=8, num_stages=3), True
    for dim in (16, 80, 128, 192, 256):
        yield Attention(torch.bfloat16, 2, 300, 333, dim, (64, 32), True, num_stages=3), False
    for num_warps in (1, 2, 4, 8):
        yield Attention(torch.float16, 2, 256, 256, 64, (64, 64), True, num_warps=num_warps), False
    for causal in (False, True):
        yield Attention(torch.bfloat16, 1, 64, 100, 64, (64, 64), causal), True
        yield Attention(torch.float16, 1, 128, 200, 64, (128, 32), causal, num_warps=8, num_stages=3), True
        yield Attention(torch.bfloat16, 2, 600, 1030, 128, (128, 64), causal, num_warps=8, num_stages=3), False
        yield Attention(torch.float16, 2, 300, 520, 128, (128, 128), causal, num_warps=8), False
        yield Attention(torch.bfloat16, 2, 300, 520, 128, (128, 64), causal, num_stages=3), False
    for num_stages in (1, 2, 3, 4):
        yield Attention(torch.bfloat16, 2, 512, 1000, 128, (128, 64), num_warps=8, num_stages=num_stages), False


def _product_cases() -> Iterator[Case]:
    for product, small in _products():
        yield Case(product.name, product.launch, small)
    for dtype, sizes in ((torch.float16, (2, 16, 16, 32)), (torch.float32, (4, 16, 8, 16)), (torch.bfloat16, (8, 32, 16, 16))):
        yield Case(f"batched-{_name(dtype)}", functools.partial(_batched, dtype, *sizes))
    yield Case("batched-twice", functools.partial(_batched, torch.float16, 4, 16, 16, 16, True))
    for name, launch in WARPGROUP_IDIOMS.items():
        yield Case(name, launch)
    for attention, small in _attentions():
        yield Case(attention.name, attention.launch, small)


# ---- kernels in the idioms of real code ----


def _cross_entropy(smoothing: float) -> Launch:
    x = torch.randn(4, 50, requires_grad=True)
    y = torch.tensor([3, -100, 49, 0])
    loss = F.cross_entropy(x, y, ignore_index=-100, label_smoothing=smoothing, reduction="none")
    loss.sum().backward()
    arguments = {
        "x_ptr": x.detach().clone(), "x_stride": 50, "y_ptr": y, "loss_ptr": fresh(4), "n_cols": 50, "ignore_index": -100,
        "label_smoothing": smoothing, "BLOCK": 16,
    }  # fmt: skip
    return Launch(idioms.cross_entropy, (4,), arguments, {"loss_ptr": loss.detach(), "x_ptr": x.grad}, 1e-5)


def _layer_norm_backward() -> Launch:
    n = 50
    x, w, dy = torch.randn(4, n, requires_grad=True), torch.randn(n, requires_grad=True), torch.randn(4, n)
    F.layer_norm(x, (n,), w).backward(dy)
    mean, var = x.detach().mean(1), x.detach().var(1, correction=0)
    arguments = {
        "dx_ptr": fresh(4, n), "dy_ptr": dy, "dw_ptr": torch.zeros(n), "x_ptr": x.detach(), "w_ptr": w.detach(),
        "mean_ptr": mean, "rstd_ptr": (var + 1e-5).rsqrt(), "stride": n, "N": n, "BLOCK": 64,
    }  # fmt: skip
    return Launch(idioms.layer_norm_backward, (4,), arguments, {"dx_ptr": x.grad, "dw_ptr": w.grad}, 1e-5)


def _swiglu(dtype: torch.dtype) -> Launch:
    a, b = _random(3, 200, dtype=dtype), _random(3, 200, dtype=dtype)
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": fresh(3, 200, dtype=dtype), "stride": 200, "n_cols": 200, "BLOCK": 256}
    return Launch(idioms.swiglu, (3,), arguments, {"c_ptr": F.silu(a.double()) * b.double()}, _EPSILON[dtype])


def _persistent_softmax() -> Launch:
    x = torch.randn(37, 100)
    arguments = {
        "out_ptr": fresh(37, 100), "in_ptr": x, "in_stride": 100, "out_stride": 100, "n_rows": 37, "n_cols": 100, "BLOCK": 128,
        "num_stages": 2,
    }  # fmt: skip
    return Launch(idioms.softmax_rows, (5,), arguments, {"out_ptr": x.double().softmax(-1)}, 2e-6)


def _idiom_attention(causal: bool) -> Launch:
    q, k, v = (torch.randn(2, 50, 32).half() for _ in range(3))
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    arguments = {
        "q_ptr": q, "k_ptr": k, "v_ptr": v, "out_ptr": fresh(2, 50, 32, dtype=torch.float16), "lse_ptr": fresh(2, 50),
        "sm_scale": 32**-0.5, "stride_bh": 50 * 32, "stride_n": 32, "seqlen": 50, "HEAD_DIM": 32, "BLOCK_M": 16, "BLOCK_N": 16,
        "STAGE": 3 if causal else 1,
    }  # fmt: skip
    return Launch(idioms.attention_forward, (4, 2), arguments, {"out_ptr": expected}, 2e-3)


def _idiom_cases() -> Iterator[Case]:
    for smoothing in (0.0, 0.1):
        yield Case(f"cross-entropy-{smoothing}", functools.partial(_cross_entropy, smoothing))
    yield Case("layer-norm-backward", _layer_norm_backward)
    for dtype in FLOATS:
        yield Case(f"swiglu-{_name(dtype)}", functools.partial(_swiglu, dtype))
    yield Case("persistent-softmax", _persistent_softmax)
    for causal in (False, True):
        yield Case(f"idiom-attention-{'causal' if causal else 'full'}", functools.partial(_idiom_attention, causal))


def _tile_cases() -> Iterator[Case]:
    for name, launch in TILE_LAUNCHES.items():
        yield Case(name, launch)


_SOURCES = (_tile_cases, _memory_cases, _reduction_cases, _atomic_cases, _product_cases, _idiom_cases)
