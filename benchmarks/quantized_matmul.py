"""Products with quantised weights: one row beside ggml's dot (Q4_1) and torch on the dequantised weight, and many rows beside torch.

ggml is the one in PyPI's llama-cpp-python, where that is installed; it is timed on one thread.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import DTYPES, OURS, Case, Prepared
from benchmarks.report import main
from ops._quantized_weights import dequantize
from ops.quantized_matmul import rounded
from ops.repack import Format

BLOCK = 32
GROUP = 128
"""Elements that share a scale in "int4", which is what AWQ and GPTQ give."""

Weight = tuple[Tensor, Tensor, Tensor]


def q4_1_blocks(columns: int, depth: int, device: str) -> Tensor:
    """Returns a random weight in Q4_1, as GGUF has it: for each 32 elements a step and a least one in float16, and codes."""
    factors = torch.rand(columns, depth // BLOCK, 2, device=device).mul_(torch.tensor([0.02, -0.15], device=device)).half()
    codes = torch.randint(0, 256, (columns, depth // BLOCK, BLOCK // 2), dtype=torch.uint8, device=device)
    return torch.cat((factors.view(torch.uint8), codes), -1).reshape(columns, -1)


def _weight(kind: str, columns: int, depth: int, device: str) -> tuple[Tensor, Weight]:
    """Returns a weight as ggml has it, if it does, and in the layout of quantized_matmul; `columns` are a multiple of 64."""
    if kind == "Q4_1":
        blocks = q4_1_blocks(columns, depth, device)
        return blocks, torch.ops.kernelpack.repack(blocks, Format.Q4_1)
    bits, group = (8, BLOCK) if kind == "Q8_0" else (4, GROUP)
    shape = (columns // 64, depth // BLOCK, bits, 64)
    codes = torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, device=device)
    scales = torch.rand(columns // 64, depth // group, 64, device=device) * (0.002 if bits == 8 else 0.02)
    scales = scales.half() if kind == "Q8_0" else scales
    mins = scales[:, :0] if bits == 8 else scales * -7.5
    return torch.empty(0), (codes, scales, mins.contiguous())


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, [(1, "Q4_1", 576, 576), (40, "Q4_1", 576, 576)], [1]))
    if device == "cuda":
        rows = [(1, kind, size, size) for kind in ("Q4_1", "Q8_0", "int4") for size in (4096, 8192)]
        return list(_cases(device, [*rows, *((count, "int4", 4096, 4096) for count in (8, 16, 64, 512, 4096))], [1]))
    sizes = [(1536, 576), (576, 1536), (2048, 2048), (4096, 4096)]
    single = [(1, kind, *size) for kind in ("Q4_1", "int4", "Q8_0") for size in sizes if size[1] % GROUP == 0 or kind != "int4"]
    many = [(rows, "Q4_1", *size) for rows in (8, 128, 512) for size in ((1536, 576), (2048, 2048))]
    return list(_cases(device, [*single, *many], [1, 2]))


def _cases(device: str, shapes: list[tuple[int, str, int, int]], threads: list[int]) -> Iterator[Case]:
    for rows, kind, columns, depth in shapes:
        paths = (
            (("bf16", "exact"), ("bf16", "int8"))
            if device == "cuda"
            else (("fp32", "exact"), ("bf16", "exact"), ("fp32", "int8"))
        )
        for dtype, path in paths:
            for count in threads:
                peers = ["torch fp32" if dtype == "fp32" and path == "exact" else "torch bf16"]
                if rows == 1 and kind == "Q4_1" and count == 1 and dtype == "fp32" and _ggml() is not None:
                    peers.append("ggml")
                bits = {"Q4_1": 5.0, "int4": 4 + 64 / GROUP, "Q8_0": 8.5}[kind]
                unit, work = (
                    ("GB/s", columns * depth * bits / 8e9) if rows == 1 else ("TFLOP/s", 2 * rows * columns * depth / 1e12)
                )
                name = f"{rows} x {kind} {columns}x{depth} {dtype} {path}" + (f" {count}t" if device == "cpu" else "")
                arguments = {
                    "rows": rows,
                    "kind": kind,
                    "columns": columns,
                    "depth": depth,
                    "dtype": dtype,
                    "int8": path == "int8",
                }
                yield Case(name, unit, work, device, tuple(peers), "quantized_matmul", count, arguments, graph=device == "cuda")


@functools.cache
def _ggml() -> Callable[..., None] | None:
    """Returns ggml's product of a row and a weight in Q4_1: product(x, scratch, blocks, out)."""
    found = importlib.util.find_spec("llama_cpp")
    library = Path(found.origin).parent / "lib" / "libggml-cpu.so" if found is not None and found.origin else None
    if library is None or not library.exists():
        return None
    ggml = ctypes.CDLL(str(library))
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "peer.so"
        source = Path(__file__).with_name("ggml_peer.cpp")
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", str(source), "-o", str(built)], check=True)
        peer = ctypes.CDLL(str(built))
    dot, quantize = (
        ctypes.cast(getattr(ggml, name), ctypes.c_void_p) for name in ("ggml_vec_dot_q4_1_q8_1", "quantize_row_q8_1")
    )

    def product(x: Tensor, scratch: Tensor, blocks: Tensor, out: Tensor) -> None:
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, scratch, blocks, out)]
        columns, row = blocks.shape
        peer.product(
            dot, quantize, *pointers[:3], ctypes.c_int64(row), ctypes.c_int(columns), ctypes.c_int(x.shape[-1]), pointers[3]
        )

    return product


def prepare(case: Case) -> Prepared:
    given = case.arguments
    rows, columns, depth, int8 = given["rows"], given["columns"], given["depth"], given["int8"]
    dtype = DTYPES[given["dtype"]]

    def inputs() -> tuple[Any, ...]:
        blocks, weight = _weight(given["kind"], columns, depth, case.device)
        x = torch.randn(rows, depth, device=case.device).to(dtype)
        whole = dequantize(*weight)
        plain = [whole.to(dtype if peer == "torch fp32" else torch.bfloat16) for peer in case.peers[:1]]
        scratch, out = torch.empty(depth // BLOCK * 36, dtype=torch.uint8), torch.empty(rows, columns)
        tensors = (x, *weight, *plain, x.to(plain[0].dtype), blocks, scratch, out)
        return tuple(tensor.to(case.device) for tensor in tensors)

    def ours(x: Tensor, codes: Tensor, scales: Tensor, mins: Tensor, *rest: Tensor) -> Tensor:
        result: Tensor = torch.ops.kernelpack.quantized_matmul(x, codes, scales, mins, int8=int8)
        return result

    def stock(*tensors: Tensor) -> Tensor | None:
        result = F.linear(tensors[5], tensors[4])
        return result if result.dtype == dtype and not int8 else None  # else it rounds otherwise, which is not compared

    def ggml(*tensors: Tensor) -> None:
        product = _ggml()
        assert product is not None
        x, *_, blocks, scratch, out = tensors
        product(x, scratch, blocks, out)

    def right(*tensors: Tensor) -> Tensor:
        x = tensors[0].float()
        return ((rounded(x) if int8 else x) @ dequantize(*tensors[1:4]).T).to(dtype)

    return Prepared(inputs, {OURS: ours, "torch fp32": stock, "torch bf16": stock, "ggml": ggml}, right)


if __name__ == "__main__":
    main("benchmarks.quantized_matmul")
