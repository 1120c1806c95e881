"""Matrix products: torch.ops.kernelpack.matmul beside torch.matmul, scaled_matmul beside torch._scaled_mm; of int8 beside torch._int_mm, which
scales nothing, and on CPUs oneDNN's quantised linear layer, whose weight is packed beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import torch

from benchmarks.measure import DTYPES, FAST_MKL, OURS, Case, Prepared, cpu_threads
from benchmarks.report import main


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cubes(device, ["fp32"], [128], [1], ["nn"]))
    if device == "cpu":
        return [
            *_cubes(device, ["fp32", "bf16"], [512, 1024, 2048, 4096], cpu_threads(), ["nn"]),
            *_few_rows(device, ["fp32", "bf16"], [1, 4, 16, 64], [2048, 4096]),
            *(_int8((size, size, size), count) for size in (512, 1024, 2048, 4096) for count in cpu_threads()),
            *(_int8((rows, size, size), 1) for rows in (1, 4, 16, 64) for size in (2048, 4096)),
        ]
    return [
        *_cubes(device, ["bf16", "fp16"], [2048, 4096, 8192], [1], ["nn", "nt"]),
        *_few_rows(device, ["bf16"], [1, 16, 32, 64, 65, 128, 200, 256, 300, 512, 700], [4096, 8192]),
        *_few_rows(device, ["bf16"], [1, 64, 512, 4096], [4040]),  # rows of an odd number of 16 bytes
        *_cubes(device, ["fp32"], [1024, 2048, 4096, 8192], [1], ["nn", "nt"]),
        *_few_rows(device, ["fp32"], [1, 2, 16, 32, 64], [1024, 4096]),
        *(_scaled((size, size, size)) for size in (2048, 4096, 8192)),
        *(_scaled((rows, size, size)) for size in (4096, 8192) for rows in (1, 16, 64, 128, 256, 512)),
        *(_int8_on_gpu((rows, size, size)) for size in (4096, 8192) for rows in (32, 64, 128, 256, 512, size)),
    ]


def _cubes(device: str, dtypes: list[str], sizes: list[int], threads: list[int], layouts: list[str]) -> Iterator[Case]:
    """Products of square matrices; b is row-major (nn) or the transpose of a row-major weight (nt)."""
    for dtype, size, layout, count in product(dtypes, sizes, layouts, threads):
        name = f"{dtype} {size}" + (f" {count}t" if device == "cpu" else f" {layout}")
        yield _case(name, device, dtype, (size, size, size), layout, count, False)


def _few_rows(device: str, dtypes: list[str], rows: list[int], sizes: list[int]) -> Iterator[Case]:
    """A few tokens times a weight, as in decoding: bound by reading the weight."""
    for dtype, size, count in product(dtypes, sizes, rows):
        name = f"{dtype} {count} rows {size} nt" + (" 1t" if device == "cpu" else "")
        yield _case(name, device, dtype, (count, size, size), "nt", 1, device == "cuda")


def _case(name: str, device: str, dtype: str, shape: tuple[int, int, int], layout: str, threads: int, graph: bool) -> Case:
    unit, scale = ("GFLOP/s", 1e9) if device == "cpu" else ("TFLOP/s", 1e12)
    peers = ("stock torch", FAST_MKL) if device == "cpu" else ("cublas",)
    arguments = {"shape": shape, "dtype": dtype, "layout": layout}
    return Case(name, unit, 2 * math.prod(shape) / scale, device, peers, "matmul", threads, arguments, graph)


def _scaled(shape: tuple[int, int, int]) -> Case:
    """A product of 8-bit floats with one scale each; the peer sums as tensor cores do, with use_fast_accum."""
    return _bytes_on_gpu("fp8", shape, "scaled_mm")


def _int8_on_gpu(shape: tuple[int, int, int]) -> Case:
    """With a scale for each row and column; the peer takes more than 16 rows."""
    return _bytes_on_gpu("int8", shape, "int_mm")


def _bytes_on_gpu(kind: str, shape: tuple[int, int, int], peer: str) -> Case:
    rows, size, _ = shape
    name = f"{kind} {size} nt" if rows == size else f"{kind} {rows} rows {size} nt"
    arguments = {"shape": shape, "kind": kind}
    return Case(name, "TFLOP/s", 2 * math.prod(shape) / 1e12, "cuda", (peer,), "scaled_matmul", 1, arguments, rows != size)


def _int8(shape: tuple[int, int, int], threads: int) -> Case:
    rows, size, _ = shape
    name = f"int8 {size} {threads}t" if rows == size else f"int8 {rows} rows {size} {threads}t"
    peers = ("int_mm", "onednn")
    return Case(name, "GOP/s", 2 * math.prod(shape) / 1e9, "cpu", peers, "scaled_matmul", threads, {"shape": shape})


def _prepare_int8(case: Case) -> Prepared:
    rows, columns, depth = case.arguments["shape"]

    def inputs() -> tuple[torch.Tensor, ...]:
        a, b = (torch.randint(-128, 128, (extent, depth), dtype=torch.int8) for extent in (rows, columns))
        return a, b, torch.tensor(0.5), torch.rand(columns), torch.ops.onednn.qlinear_prepack(b, None)

    def ours(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.ops.kernelpack.scaled_matmul(a, b.T, a_scale, b_scale[None])

    def int_mm(a: torch.Tensor, b: torch.Tensor, *_: torch.Tensor) -> None:
        torch._int_mm(a, b.T)

    zeros = torch.zeros(columns, dtype=torch.int64)

    def onednn(
        a: torch.Tensor, _: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, packed: torch.Tensor
    ) -> torch.Tensor:
        linear = torch.ops.onednn.qlinear_pointwise
        return linear(a, a_scale.item(), 0, packed, b_scale, zeros, None, 1.0, 0, torch.bfloat16, "none", [], "")

    return Prepared(inputs, {OURS: ours, "int_mm": int_mm, "onednn": onednn})


def _prepare_scaled(case: Case) -> Prepared:
    rows, columns, depth = case.arguments["shape"]

    def floats() -> tuple[torch.Tensor, ...]:
        a, b = (torch.randn(extent, depth, device=case.device).to(torch.float8_e4m3fn) for extent in (rows, columns))
        return a, b.T, torch.tensor(0.5, device=case.device), torch.tensor(0.25, device=case.device)

    def integers() -> tuple[torch.Tensor, ...]:
        a, b = (torch.randint(-128, 128, (extent, depth), dtype=torch.int8, device=case.device) for extent in (rows, columns))
        return a, b.T, torch.rand(rows, 1, device=case.device), torch.rand(1, columns, device=case.device)

    def int_mm(a: torch.Tensor, b: torch.Tensor, *_: torch.Tensor) -> None:
        torch._int_mm(a, b)

    def scaled_mm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=True)

    inputs = floats if case.arguments["kind"] == "fp8" else integers
    return Prepared(inputs, {OURS: torch.ops.kernelpack.scaled_matmul, "scaled_mm": scaled_mm, "int_mm": int_mm})


def prepare(case: Case) -> Prepared:
    if case.op == "scaled_matmul":
        return _prepare_int8(case) if case.device == "cpu" else _prepare_scaled(case)
    (rows, columns, depth), dtype = case.arguments["shape"], DTYPES[case.arguments["dtype"]]

    def inputs() -> tuple[torch.Tensor, ...]:
        a = torch.randn(rows, depth, device=case.device, dtype=dtype)
        if case.arguments["layout"] == "nt":
            return a, torch.randn(columns, depth, device=case.device, dtype=dtype).T
        return a, torch.randn(depth, columns, device=case.device, dtype=dtype)

    stock = torch.matmul
    return Prepared(inputs, {OURS: torch.ops.kernelpack.matmul, "stock torch": stock, FAST_MKL: stock, "cublas": stock})


if __name__ == "__main__":
    main("benchmarks.matmul")
