"""What a language model needs beside attention and products, beside the lines of torch that each op replaces: add_rms_norm and
add_rms_norm_int8, silu_and_mul, gelu_and_mul, rope_and_cache, embedding, copy_blocks. On GPUs vLLM's C++ kernels are peers, if
benchmarks/vllm_libraries.py has got them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import vllm_libraries
from benchmarks.measure import DTYPES, OURS, Case, Prepared, Result
from benchmarks.report import main

_VLLM = "vLLM's kernels"
BLOCK = 16
"""Slots of a block of the caches."""
POSITIONS = 4096


@dataclass(frozen=True)
class _Shape:
    """The sizes of a call. Rows of `width` are hidden states, of `ffn` a feed-forward part's; keys and values have `key_heads`."""

    tokens: int
    width: int
    ffn: int
    heads: int
    key_heads: int
    size: int
    interleaved: bool

    def __str__(self) -> str:
        return f"{self.tokens}x{self.width}"


def _small(tokens: int) -> _Shape:
    """SmolLM2-135M."""
    return _Shape(tokens, 576, 1536, 9, 3, 64, True)


def _large(tokens: int) -> _Shape:
    """Llama 3 8B."""
    return _Shape(tokens, 4096, 14336, 32, 8, 128, False)


Make = Callable[..., Tensor]


@dataclass(frozen=True)
class _Op:
    """One op: its inputs, made by `random` and `integers`, the lines of torch, the bytes that a call has to move, and vLLM's kernels.
    All contenders return the op's result and what it wrote to."""

    inputs: Callable[[_Shape, Make, str], tuple[Any, ...]]
    ours: Callable[..., Result]
    stock: Callable[..., Result]
    moved: Callable[[_Shape, int], float]
    reference: Callable[..., Result]
    vllm: Callable[..., Result] | None = None


def _added(shape: _Shape, random: Make, device: str) -> tuple[Any, ...]:
    x, residual = (random(shape.tokens, shape.width) for _ in range(2))
    return x * 1e-3, residual, random(shape.width)  # added over and over


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    return torch.ops.kernelpack.add_rms_norm(x, residual, weight, 1e-6), residual


def _add_rms_norm_stock(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    residual.add_(x)
    return F.rms_norm(residual, weight.shape, weight, 1e-6), residual


def _add_rms_norm_int8(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    _, scales = torch.ops.kernelpack.add_rms_norm_int8(x, residual, weight, 1e-6)
    return _of_quantized(scales, residual)


def _add_rms_norm_int8_stock(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    residual.add_(x)
    norm = F.rms_norm(residual, weight.shape, weight, 1e-6).float()
    scales = norm.abs().amax(-1, keepdim=True) / 127
    (norm / scales).round().to(torch.int8)
    return _of_quantized(scales, residual)


def _add_rms_norm_int8_right(*inputs: Tensor) -> Result:
    _, scales, residual = _reference("add_rms_norm_int8")(*inputs, 1e-6)
    return _of_quantized(scales, residual)


def _of_quantized(scales: Tensor, residual: Tensor) -> Result:
    """What the check of a run compares: the tests look at 8-bit numbers. In 16 bits torch's lines round the norm before it is quantized,
    and have other scales."""
    return (scales, residual) if residual.dtype == torch.float32 else residual


def _add_rms_norm_vllm(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    vllm_libraries.library("_C").fused_add_rms_norm(x, residual, weight, 1e-6)
    return x, residual


def _add_rms_norm_int8_vllm(x: Tensor, residual: Tensor, weight: Tensor) -> Result:
    out, scales = torch.empty_like(x, dtype=torch.int8), x.new_empty(x.shape[0], 1, dtype=torch.float32)
    vllm_libraries.library("_C").rms_norm_dynamic_per_token_quant(out, x, weight, scales, 1e-6, None, residual)
    return _of_quantized(scales, residual)


def _halves(shape: _Shape, random: Make, device: str) -> tuple[Any, ...]:
    return (random(shape.tokens, 2 * shape.ffn),)


def _silu_and_mul_stock(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


def _gelu_and_mul_stock(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * value


def _halves_vllm(name: str, x: Tensor) -> Tensor:
    out = x.new_empty(x.shape[0], x.shape[1] // 2)
    getattr(vllm_libraries.library("_C"), name)(out, x)
    return out


def _cached(cache: torch.dtype | None, shape: _Shape, random: Make, device: str) -> tuple[Any, ...]:
    rows = [random(shape.tokens, heads, shape.size) for heads in (shape.heads, shape.key_heads, shape.key_heads)]
    blocks = shape.tokens // BLOCK + 8
    caches = [random(blocks, BLOCK, shape.key_heads, shape.size) for _ in range(2)]
    if cache is not None:
        caches = [one.to(cache) for one in caches]
    angles = torch.rand(POSITIONS, shape.size // 2, device=device) * 6
    slots = torch.randperm(blocks * BLOCK, device=device)[: shape.tokens]
    positions = torch.arange(shape.tokens, device=device) % POSITIONS
    table = torch.cat((angles.cos(), angles.sin()), -1)
    of_vllm = (table.to(rows[0].dtype), torch.ones((), device=device))  # angles as it has them, and the scale of 8-bit caches
    return (*rows, *caches, positions, table, slots, shape.interleaved, *of_vllm)


def _of_cached(query: Tensor, key: Tensor, key_cache: Tensor, value_cache: Tensor) -> Result:
    """Caches in 8 bits are left to the tests."""
    return (query, key) if key_cache.element_size() == 1 else (query, key, key_cache, value_cache)


def _rope_and_cache(query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, *rest: Any) -> Result:
    *tensors, interleaved, _, _ = rest
    torch.ops.kernelpack.rope_and_cache(query, key, value, key_cache, value_cache, *tensors, interleaved=interleaved)
    return _of_cached(query, key, key_cache, value_cache)


def _rope_and_cache_stock(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, positions: Tensor, angles: Tensor,
    slots: Tensor, interleaved: bool, *rest: Tensor,
) -> Result:  # fmt: skip
    cos, sin = angles.index_select(0, positions).to(query.dtype).unsqueeze(1).chunk(2, -1)
    for x in (query, key):
        if interleaved:
            a, b = x[..., 0::2], x[..., 1::2]
            x.copy_(torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2))
        else:
            a, b = x.chunk(2, -1)
            x.copy_(torch.cat((a * cos - b * sin, b * cos + a * sin), -1))
    for cache, new in ((key_cache, key), (value_cache, value)):
        cache.flatten(0, 1)[slots] = new.to(cache.dtype)
    return _of_cached(query, key, key_cache, value_cache)


def _rope_and_cache_vllm(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, positions: Tensor, angles: Tensor,
    slots: Tensor, interleaved: bool, rounded: Tensor, scale: Tensor,
) -> Result:  # fmt: skip
    vllm_libraries.library("_C").rotary_embedding(positions, query, key, query.shape[-1], rounded, not interleaved)
    kind, caches = "auto", (key_cache, value_cache)
    if key_cache.element_size() == 1:
        kind, caches = "fp8", (key_cache.view(torch.uint8), value_cache.view(torch.uint8))
    torch.ops._C_cache_ops.reshape_and_cache_flash(key, value, *caches, slots, kind, scale, scale)
    return _of_cached(query, key, key_cache, value_cache)


def _rope_and_cache_right(*inputs: Any) -> Result:
    return _of_cached(*_reference("rope_and_cache")(*inputs[:-2]))


def _ids(shape: _Shape, random: Make, device: str) -> tuple[Any, ...]:
    rows = 49152 if shape.width < 1024 else 16384
    return torch.randint(0, rows, (shape.tokens,), device=device), random(rows, shape.width)


def _blocks(shape: _Shape, random: Make, device: str) -> tuple[Any, ...]:
    count = max(1, shape.tokens // BLOCK)
    caches = [random(2 * count + 2, BLOCK, shape.key_heads, shape.size) for _ in range(2)]
    return (*caches, torch.randperm(2 * count, device=device).reshape(count, 2))


def _copy_blocks(key_cache: Tensor, value_cache: Tensor, pairs: Tensor) -> Result:
    torch.ops.kernelpack.copy_blocks(key_cache, value_cache, pairs)
    return key_cache, value_cache


def _copy_blocks_stock(key_cache: Tensor, value_cache: Tensor, pairs: Tensor) -> Result:
    source, target = pairs.unbind(1)
    key_cache[target] = key_cache[source]
    value_cache[target] = value_cache[source]
    return key_cache, value_cache


def _reference(op: str) -> Callable[..., Any]:
    reference: Callable[..., Any] = importlib.import_module(f"ops.{op}").reference
    return reference


def _cache_bytes(cache: int | None, shape: _Shape, size: int) -> float:
    """Queries and keys are read and written, values are read; keys and values are written once more."""
    rows = shape.tokens * shape.size
    return rows * (2 * shape.heads + 3 * shape.key_heads) * size + 2 * rows * shape.key_heads * (cache or size)


def _ops() -> dict[str, _Op]:
    own = torch.ops.kernelpack
    return {
        "add_rms_norm": _Op(
            _added, _add_rms_norm, _add_rms_norm_stock, lambda s, size: 4 * s.tokens * s.width * size,
            partial(_reference("add_rms_norm"), eps=1e-6), _add_rms_norm_vllm,
        ),
        "add_rms_norm_int8": _Op(
            _added, _add_rms_norm_int8, _add_rms_norm_int8_stock, lambda s, size: s.tokens * s.width * (3 * size + 1),
            _add_rms_norm_int8_right, _add_rms_norm_int8_vllm,
        ),
        "silu_and_mul": _Op(
            _halves, lambda x: own.silu_and_mul(x), _silu_and_mul_stock, lambda s, size: 3 * s.tokens * s.ffn * size,
            _reference("silu_and_mul"), partial(_halves_vllm, "silu_and_mul"),
        ),
        "gelu_and_mul": _Op(
            _halves, lambda x: own.gelu_and_mul(x, approximate=1), _gelu_and_mul_stock,
            lambda s, size: 3 * s.tokens * s.ffn * size, partial(_reference("gelu_and_mul"), approximate=1),
            partial(_halves_vllm, "gelu_tanh_and_mul"),
        ),
        "rope_and_cache": _Op(
            partial(_cached, None), _rope_and_cache, _rope_and_cache_stock, partial(_cache_bytes, None), _rope_and_cache_right,
            _rope_and_cache_vllm,
        ),
        "rope_and_cache fp8": _Op(
            partial(_cached, torch.float8_e4m3fn), _rope_and_cache, _rope_and_cache_stock, partial(_cache_bytes, 1),
            _rope_and_cache_right, _rope_and_cache_vllm,
        ),
        "embedding": _Op(
            _ids, lambda ids, weight: own.embedding(ids, weight), F.embedding, lambda s, size: 2 * s.tokens * s.width * size,
            _reference("embedding"),
        ),
        "copy_blocks": _Op(
            _blocks, _copy_blocks, _copy_blocks_stock,
            lambda s, size: 4 * max(1, s.tokens // BLOCK) * BLOCK * s.key_heads * s.size * size, _reference("copy_blocks"),
        ),
    }  # fmt: skip


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [_small(40)], [1]))
    if device == "cpu":  # one token, a batch of decoding rows, a chunk of a prompt
        shapes = [_small(1), _small(16), _small(512), _large(1), _large(512)]
        return list(_cases(device, ["fp32", "bf16"], shapes, [1, 2]))
    return list(_cases(device, ["fp32", "bf16"], [_large(64), _large(8192), _large(32768)], [1]))


def _cases(device: str, dtypes: list[str], shapes: list[_Shape], threads: list[int]) -> Iterator[Case]:
    for name, op in _ops().items():
        peers: tuple[str, ...] = ("stock torch",)
        if device == "cuda":
            peers += ("copy bandwidth", *(vllm_libraries.peers("_C", _VLLM) if op.vllm is not None else ()))
        for dtype in dtypes:
            for shape in shapes:
                for count in threads:
                    text = f"{name} {dtype} {shape}" + (f" {count}t" if device == "cpu" else "")
                    work = op.moved(shape, DTYPES[dtype].itemsize) / 1e9
                    arguments = {"shape": shape, "dtype": dtype, "name": name}
                    yield Case(text, "GB/s", work, device, peers, name.split()[0], count, arguments)


def prepare(case: Case) -> Prepared:
    op, shape, dtype = _ops()[case.arguments["name"]], case.arguments["shape"], DTYPES[case.arguments["dtype"]]
    count = 0

    def random(*extents: int) -> Tensor:
        return torch.randn(extents, device=case.device).to(dtype)

    def inputs() -> tuple[Any, ...]:
        nonlocal count
        given = op.inputs(shape, random, case.device)
        count = len(given)
        copied = round(case.work * 1e9) // (2 * dtype.itemsize) if "copy bandwidth" in case.peers else 0  # moves as many bytes
        return (*given, random(copied), random(copied))

    def on_inputs(call: Callable[..., Result]) -> Callable[..., Result]:
        return lambda *given: call(*given[:count])

    def copy(*given: Tensor) -> None:
        *_, source, target = given
        target.copy_(source)

    contenders = {OURS: on_inputs(op.ours), "stock torch": on_inputs(op.stock), "copy bandwidth": copy}
    if op.vllm is not None:
        contenders[_VLLM] = on_inputs(op.vllm)
    return Prepared(inputs, contenders, on_inputs(op.reference))


if __name__ == "__main__":
    main("benchmarks.fused_rows")
