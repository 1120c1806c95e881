"""The table of launches that the CUDA backend is held to, on the emulator and on a GPU, each with what torch computes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from kernelpack.options import Options
from tests.backends.cuda import kernels
from tests.backends.cuda.launch import EPSILON, FLOATS, Case, Launch, fresh, name_of, random
from tests.backends.cuda.product_cases import product_cases
from tests.backends.cuda.tile_cases import TILE_LAUNCHES
from tests.frontend import kernels as idioms


def cases() -> list[Case]:
    """Returns every case; names are unique."""
    return list({case.name: case for source in _SOURCES for case in source()}.values())


# ---- memory and arithmetic ----


def _vector_add(dtype: torch.dtype, n: int, shift: int, num_warps: int) -> Launch:
    x, y = (random(n + shift, dtype=dtype)[shift:] for _ in range(2))
    out = fresh(n + shift, dtype=dtype)[shift:]
    return Launch(
        idioms.vector_add, (-(-n // 512),), {"x_ptr": x, "y_ptr": y, "out_ptr": out, "n": n, "BLOCK": 512},
        {"out_ptr": x + y}, options=Options(num_warps=num_warps),
    )  # fmt: skip


def _copy(dtype: torch.dtype, order: str, m: int, n: int, bm: int, bn: int, num_warps: int) -> Launch:
    x = random(m, n, dtype=dtype) if order[0] == "r" else random(n, m, dtype=dtype).T
    out = fresh(m + 1, n + 1, dtype=dtype) if order[1] == "r" else fresh(n + 1, m + 1, dtype=dtype).T
    arguments = {"x": x, "out": out, "M": m, "N": n, "BM": bm, "BN": bn, "OTHER": 7}
    arguments |= dict(zip(("sxm", "sxn", "som", "son"), (*x.stride(), *out.stride()), strict=True))
    grid = (-(-(m + 1) // bm), -(-(n + 1) // bn))
    expected = F.pad(x.double(), (0, 1, 0, 1), value=7).to(dtype)
    return Launch(kernels.copy_2d, grid, arguments, {"out": expected}, options=Options(num_warps=num_warps))


def _transpose(dtype: torch.dtype, m: int, n: int) -> Launch:
    x = random(m, n, dtype=dtype)
    return Launch(kernels.transpose, (1,), {"x": x, "out": fresh(n, m, dtype=dtype), "M": m, "N": n}, {"out": x.T.contiguous()})


def _rearrange(dtype: torch.dtype, a: int, b: int, c: int, num_warps: int) -> Launch:
    x = random(a, b, c, dtype=dtype)
    swapped = x.reshape(a * b, c // 2, 2).flip(-1).reshape(a, b, c)
    arguments = {"x": x, "out": fresh(c, b, a, dtype=dtype), "A": a, "B": b, "C": c}
    expected = swapped.permute(2, 1, 0).contiguous()
    return Launch(kernels.rearrange, (1,), arguments, {"out": expected}, options=Options(num_warps=num_warps))


def _integers(dtype: torch.dtype, first: int) -> Launch:
    n = 700
    x, y = random(n, dtype=dtype), random(n, dtype=dtype)
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
        yield Case(f"add-{name_of(dtype)}", functools.partial(_vector_add, dtype, 1100, 0, 4))
    for num_warps in (1, 2, 8):
        yield Case(f"add-unaligned-{num_warps}", functools.partial(_vector_add, torch.bfloat16, 1025, 1, num_warps))
    for order in ("rr", "rc", "cr", "cc"):
        for dtype in (torch.float32, torch.bfloat16, torch.int8):
            make = functools.partial(_copy, dtype, order, 45, 70, 32, 32, 4)
            yield Case(f"copy-{order}-{name_of(dtype)}", make)
    for num_warps, bm, bn in ((1, 16, 64), (2, 1, 128), (8, 64, 1), (8, 64, 64)):
        make = functools.partial(_copy, torch.float16, "rc", 64, 96, bm, bn, num_warps)
        yield Case(f"copy-{bm}x{bn}-{num_warps}", make)
    for dtype, m, n in ((torch.float32, 64, 32), (torch.bfloat16, 16, 128), (torch.float64, 32, 32), (torch.int8, 64, 64)):
        yield Case(f"transpose-{name_of(dtype)}-{m}x{n}", functools.partial(_transpose, dtype, m, n))
    for dtype, a, b, c, num_warps in ((torch.float32, 8, 4, 16, 4), (torch.float16, 2, 32, 8, 1), (torch.int32, 16, 16, 2, 8)):
        yield Case(f"rearrange-{a}x{b}x{c}-{num_warps}", functools.partial(_rearrange, dtype, a, b, c, num_warps))
    for dtype, first in ((torch.int32, 9), (torch.int64, -2), (torch.int32, 0)):
        yield Case(f"integers-{name_of(dtype)}-{first}", functools.partial(_integers, dtype, first))


# ---- reductions and scans ----


def _reduce(dtype: torch.dtype, kind: str, axis: int | None, m: int, n: int, bm: int, bn: int, num_warps: int) -> Launch:
    x = random(m, n, dtype=dtype)
    wide = x.double() if dtype.is_floating_point else x.long()
    padded = F.pad(wide, (0, bn - n, 0, bm - m))
    compute = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[kind]
    expected = compute(padded, dim=(0, 1) if axis is None else axis)
    expected = expected.reshape(1) if axis is None else expected[: n if axis == 0 else m]
    # as the language has it: integers narrower than 32 bits are summed in 32
    result = torch.int32 if kind == "sum" and dtype in (torch.int8, torch.int16) else dtype
    arguments = {"x": x, "out": fresh(*expected.shape, dtype=result), "M": m, "N": n, "sm": n, "BM": bm, "BN": bn}
    tolerance = EPSILON[dtype] if kind == "sum" and dtype.is_floating_point else 0.0
    return Launch(
        kernels.reduce_2d, (1,), arguments | {"AXIS": axis, "KIND": kind}, {"out": expected}, tolerance, Options(num_warps=num_warps)
    )  # fmt: skip


def _scan(m: int, n: int, axis: int, reverse: bool, num_warps: int, dtype: torch.dtype = torch.float32) -> Launch:
    x = random(m, n) if dtype == torch.float32 else random(m, n, dtype=torch.int32).to(dtype)  # halves: sums are exact
    wide = x.double().flip(axis) if reverse else x.double()
    total = wide.cumsum(axis)
    arguments = {"x": x, "out": fresh(m, n, dtype=dtype), "M": m, "N": n, "AXIS": axis, "REVERSE": reverse}
    expected = {"out": total.flip(axis) if reverse else total}
    return Launch(kernels.scan_2d, (1,), arguments, expected, 1e-6, Options(num_warps=num_warps))


def _normalise(dtype: torch.dtype, rows: int, n: int, bm: int, bn: int, num_warps: int) -> Launch:
    x, w, b = random(rows, n, dtype=dtype), random(n, dtype=dtype), random(n, dtype=dtype)
    expected = F.layer_norm(x.double(), (n,), w.double(), b.double(), 1e-5)
    arguments = {"x": x, "weight": w, "bias": b, "out": fresh(rows, n, dtype=dtype), "rows": rows, "n": n, "stride": n}
    return Launch(
        kernels.normalise_rows, (-(-rows // bm),), arguments | {"BM": bm, "BN": bn}, {"out": expected}, EPSILON[dtype],
        Options(num_warps=num_warps),
    )  # fmt: skip


def _softmax(dtype: torch.dtype, n: int, block: int, num_warps: int) -> Launch:
    x = random(5, n, dtype=dtype)
    x[1, 3] = float("inf") if n == 77 else 60.0
    x[2] = -float("inf") if n == 77 else x[2]
    arguments = {"x": x, "out": fresh(5, n, dtype=dtype), "stride": n, "n": n, "B": block}
    return Launch(
        kernels.softmax_row, (5,), arguments, {"out": x.double().softmax(-1)}, EPSILON[dtype], Options(num_warps=num_warps)
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
            yield Case(f"{kind}-{axis}-{name_of(dtype)}", make)
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
        yield Case(f"normalise-{name_of(dtype)}-{bm}-{num_warps}", make)
    for dtype, n, block, num_warps in (
        (torch.float32, 1000, 1024, 4), (torch.float16, 77, 128, 1), (torch.bfloat16, 64, 64, 8), (torch.float32, 2000, 2048, 2),
    ):  # fmt: skip
        yield Case(f"softmax-{name_of(dtype)}-{n}-{num_warps}", functools.partial(_softmax, dtype, n, block, num_warps))


# ---- atomics ----


def _histogram(dtype: torch.dtype, n: int, block: int) -> Launch:
    x = random(n, dtype=dtype)
    expected = torch.zeros(7, dtype=torch.float64).index_add_(0, torch.arange(n) % block % 7, x.double())
    at = torch.arange(n) // block * block + torch.arange(n) % block
    expected = torch.zeros(7, dtype=torch.float64).index_add_(0, at % 7, x.double())
    arguments = {"x": x, "out": torch.zeros(7, dtype=dtype), "n": n, "BINS": 7, "B": block}
    tolerance = 1e-5 if dtype.is_floating_point else 0.0
    return Launch(kernels.histogram, (-(-n // block),), arguments, {"out": expected}, tolerance)


def _neighbours(dtype: torch.dtype, n: int, keep: bool) -> Launch:
    x, before = random(n, dtype=dtype), random(n, dtype=dtype)
    sums, count = before.clone(), 1 if keep else 2
    for _ in range(count):
        sums += x
    arguments = {"x": x, "out": before, "old": fresh(n, dtype=dtype), "n": n, "KEEP": keep, "B": 1024}
    return Launch(kernels.add_neighbours, (count,), arguments, {"out": sums, **({"old": before.clone()} if keep else {})})


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
        yield Case(f"histogram-{name_of(dtype)}-{n}", functools.partial(_histogram, dtype, n, block))
    for dtype, n, keep in (
        (torch.float32, 992, False),
        (torch.float32, 992, True),
        (torch.float32, 700, True),
        (torch.float16, 992, True),
        (torch.bfloat16, 992, False),
        (torch.int32, 992, True),
    ):
        label = f"neighbours-{name_of(dtype)}-{n}{'-kept' if keep else ''}"
        yield Case(label, functools.partial(_neighbours, dtype, n, keep))
    yield Case("tickets", _tickets)


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
    a, b = random(3, 200, dtype=dtype), random(3, 200, dtype=dtype)
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": fresh(3, 200, dtype=dtype), "stride": 200, "n_cols": 200, "BLOCK": 256}
    return Launch(idioms.swiglu, (3,), arguments, {"c_ptr": F.silu(a.double()) * b.double()}, EPSILON[dtype])


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
        yield Case(f"swiglu-{name_of(dtype)}", functools.partial(_swiglu, dtype))
    yield Case("persistent-softmax", _persistent_softmax)
    for causal in (False, True):
        yield Case(f"idiom-attention-{'causal' if causal else 'full'}", functools.partial(_idiom_attention, causal))


def _tile_cases() -> Iterator[Case]:
    for name, launch in TILE_LAUNCHES.items():
        yield Case(name, launch)


_SOURCES = (_tile_cases, _memory_cases, _reduction_cases, _atomic_cases, product_cases, _idiom_cases)
