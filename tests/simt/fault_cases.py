"""Calls of every op in which each mask, barrier, wait and fence of their kernels has something to do: sizes are ragged, tensors have
gaps, and enough blocks follow each other that buffers are used again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ops.repack import Format
from tests.ops import quantized_cases
from tests.ops.arguments import Arguments
from tests.ops.functional import module_of
from tests.ops.fused_cases import rope_and_cache_call
from tests.ops.grid import Case
from tests.ops.layouts import contiguous, convert, gaps, padded
from tests.ops.quantized_blocks import BESIDE, given
from tests.ops.sample_cases import SETTINGS, sample_call

BF16, F32, E4M3 = torch.bfloat16, torch.float32, torch.float8_e4m3fn


@dataclass(frozen=True)
class FaultCase:
    """Calls of an op that launch the same kernels and together run all of their code. `names` says for each call what its host function
    takes from the op's file instead, so that small calls get the kernels of large ones."""

    op: str
    name: str
    calls: tuple[Callable[[], Arguments], ...]
    names: tuple[Mapping[str, Any], ...] = ()

    @property
    def label(self) -> str:
        return f"{self.op}-{self.name}"

    @property
    def function(self) -> Any:
        return getattr(module_of(self.op), self.op)


def _to(dtype: torch.dtype, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.to(dtype) for tensor in tensors)


def _gaps(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return convert(gaps(*shape), dtype)


def _row_wise() -> Iterator[FaultCase]:
    for dtype in (BF16, F32):
        kind = str(dtype).removeprefix("torch.")
        tiles = ((2, 3000), (2, 16003), (2, 30000)) if dtype == BF16 else ()
        for shape in ((3, 1000), (37, 100), (3, 5003), (3, 33000), *tiles):
            label, n = f"{kind}-{shape[0]}x{shape[1]}", shape[1]

            def rows(dtype: torch.dtype = dtype, shape: tuple[int, ...] = shape) -> torch.Tensor:
                return _gaps(dtype, *shape)

            def columns(dtype: torch.dtype = dtype, n: int = n) -> torch.Tensor:
                return torch.randn(n).to(dtype)

            yield FaultCase("softmax", label, (lambda rows=rows: ((rows(),), {}),))
            yield FaultCase("rms_norm", label, (lambda rows=rows, columns=columns: ((rows(), columns()), {}),))
            added = functools.partial(lambda rows, columns: ((rows(), rows(), columns()), {}), rows, columns)
            yield FaultCase("add_rms_norm", label, (added,))
            yield FaultCase("add_rms_norm_int8", label, (added,))
            # rows whose mean, and whose sums, need a second look too
            changes = (lambda x: x, lambda x: x + 1000, lambda x: x * (torch.finfo(x.dtype).max / 8))
            calls = [lambda rows=rows, columns=columns, f=f: ((f(rows()), columns(), columns()), {}) for f in changes]
            yield FaultCase("layer_norm", label, tuple(calls))
            if shape == (3, 1000):
                flat = functools.partial(lambda dtype: convert(contiguous(3, 1001), dtype), dtype)
                yield FaultCase("gelu", f"{kind}-flat", (lambda make=flat: ((make(),), {"approximate": 0}),))
                yield FaultCase("silu_mul", f"{kind}-flat", (lambda make=flat: ((make(), make()), {}),))
            if n in (1000, 100, 5003):
                yield FaultCase("gelu", label, (lambda rows=rows: ((rows(),), {"approximate": 1}),))
                yield FaultCase("silu_mul", label, (lambda rows=rows: ((rows(), rows()), {}),))
                if n % 2 == 0:
                    yield FaultCase("silu_and_mul", label, (lambda rows=rows: ((rows(),), {}),))
                    yield FaultCase("gelu_and_mul", label, (lambda rows=rows: ((rows(),), {"approximate": 1}),))

        for interleaved in (False, True):

            def turned(dtype: torch.dtype, interleaved: bool, head_size: int, *angles: int) -> Arguments:
                turns = torch.rand(angles)
                x = convert(padded(2, 3, 5, head_size), dtype)
                return (x, *_to(dtype, turns.cos(), turns.sin())), {"interleaved": interleaved}

            # heads with angles of their own; angles that they share, in more than one block
            calls = tuple(functools.partial(turned, dtype, interleaved, *sizes) for sizes in ((48, 3, 5, 17), (160, 5, 70)))
            yield FaultCase("rope", f"{kind}-interleaved" if interleaved else kind, calls)


def _cached() -> Iterator[FaultCase]:
    for dtype, cache in ((BF16, None), (F32, E4M3)):
        calls = [
            rope_and_cache_call(
                (3, 9, 2), (size, size), rotary=rotary, cache=cache, interleaved=interleaved, scales=(2, 2), skipped=1
            )
            for interleaved in (False, True)
            # two blocks of pairs, and heads whose larger part is not turned; aligned and not
            for size, rotary in ((192, 192), (208, 32), (190, 190), (203, 34))
        ]
        kind = str(dtype).removeprefix("torch.")
        for columns in (1040, 1003):
            ids = functools.partial(lambda dtype, n: ((torch.tensor([8, 0]), torch.randn(9, n).to(dtype)), {}), dtype, columns)
            yield FaultCase("embedding", f"{kind}-{columns}", (ids,))
        for size in (80, 77):
            copies = functools.partial(_last_blocks, dtype, size)
            yield FaultCase("copy_blocks", f"{kind}-{size}", (copies,))
        yield FaultCase("rope_and_cache", kind, tuple(functools.partial(_in_dtype, dtype, call) for call in calls))


def _last_blocks(dtype: torch.dtype, size: int) -> Arguments:
    """Copies from and to the last block, of keys and of values that are larger."""
    caches = (torch.randn(4, 11, 5, width).to(dtype) for width in (size, size + 16))
    return (*caches, torch.tensor([[3, 0], [1, 2]])), {}


def _in_dtype(dtype: torch.dtype, make: Callable[[], Arguments]) -> Arguments:
    return Case("rope_and_cache", "fault", dtype, make).arguments()


def _chosen() -> Iterator[FaultCase]:
    """Rows without a distribution, drawn from, and not, in every kernel. One dtype: logits of others are only read otherwise."""
    calls = (
        (tuple(SETTINGS), gaps), (tuple(SETTINGS), padded), (("temperature", "top_k", "top_p"), gaps), (("temperature",), padded),
    )  # fmt: skip
    yield FaultCase("sample", "bfloat16", tuple(functools.partial(_tokens, *call) for call in calls))


def _tokens(settings: tuple[str, ...], make: Callable[..., torch.Tensor]) -> Arguments:
    """Two groups and a part of one, of which many logits are equal; as few are kept as there are groups, and more."""
    args, kwargs = Case("sample", "fault", BF16, sample_call((4, 600), settings, make=make)).arguments()
    logits = args[0].round()
    logits[0] = -float("inf")
    kwargs["temperature"] = torch.tensor([1.0, 0.7, 1.5, 0.0])
    if "top_k" in settings:
        kwargs["top_k"] = torch.tensor([0, 1, 200, 0])
    return (logits, *args[1:]), kwargs


def _products() -> Iterator[FaultCase]:
    def call(dtype: torch.dtype, m: int, n: int, k: int, transposed: bool, activation: int) -> Callable[[], Arguments]:
        def arguments() -> Arguments:
            b = _gaps(dtype, n, k).t() if transposed else _gaps(dtype, k, n)
            args = (_gaps(dtype, m, k), b * torch.tensor(k**-0.5, dtype=dtype), torch.randn(n).to(dtype))
            return args, {"activation": activation}

        return arguments

    for transposed in (False, True):
        letter = "t" if transposed else "n"
        for name, dtype, (m, n, k), few in (
            ("bfloat16", BF16, (137, 75, 300), 0), ("bfloat16-few-rows", BF16, (19, 75, 300), None), ("float32", F32, (70, 75, 70), None),
            ("bfloat16-even", BF16, (136, 272, 304), 0), ("bfloat16-even-few-blocks", BF16, (136, 272, 304), 128),
            ("bfloat16-even-flat", BF16, (136, 272, 1200), 96), ("bfloat16-even-tall", BF16, (200, 272, 304), 192),
            ("bfloat16-few-rows-long", BF16, (19, 272, 1200), None), ("bfloat16-64-rows-long", BF16, (61, 272, 1200), None),
            ("float32-few-rows", F32, (19, 75, 70), None),
        ):  # fmt: skip
            step = 16 if dtype == F32 else 64  # loops of other lengths end in other places of their rings
            calls = (call(dtype, m, n, depth, transposed, a) for depth in (k, k - step, k - 2 * step) for a in (0, 4))
            blocks = {} if few is None else {"few_blocks": lambda rows, columns, batches, few=few: few}
            yield FaultCase("matmul", f"{name}-{letter}", tuple(calls), (blocks,) * 6)
        # more blocks than run at once: large ones, which roles multiply on the ordinary cores
        yield FaultCase("matmul", f"float32-many-{letter}", (call(F32, 80, 8464, 80, transposed, 4),))

    def column(depth: int, bias: bool) -> Arguments:
        return (_gaps(F32, 13, depth), torch.randn(depth, 1), torch.randn(1) if bias else None), {}

    yield FaultCase(
        "matmul", "float32-column", tuple(functools.partial(column, k, bias) for k in (600, 40) for bias in (False, True))
    )


def _scaled_products() -> Iterator[FaultCase]:
    def call(m: int, n: int, k: int) -> Callable[[], Arguments]:
        def arguments() -> Arguments:
            scales = ((torch.rand(m, 1) + 0.5) * k**-0.5, torch.rand(1, n) + 0.5)
            return (_gaps(E4M3, m, k), _gaps(E4M3, n, k).t(), *scales, torch.randn(n).bfloat16()), {}

        return arguments

    odd, even = ((133, 75, 210), (133, 75, 70)), ((144, 272, 720), (144, 272, 592))
    for name, shapes, few in (("e4m3", odd, 0), ("e4m3-even", even, 0), ("e4m3-even-flat", even, 96)):
        blocks = {"few_blocks": lambda rows, columns, batches, few=few: few}
        yield FaultCase("scaled_matmul", name, tuple(call(*shape) for shape in shapes), (blocks,) * 2)
    yield FaultCase("scaled_matmul", "e4m3-few-rows", (call(19, 272, 2320), call(19, 272, 2064)))


def _attention() -> Iterator[FaultCase]:
    def call(dtype: torch.dtype, m: int, n: int, d: int, mask: str = "", **kwargs: Any) -> Callable[[], Arguments]:
        def arguments() -> Arguments:
            q, k, v = (_gaps(dtype, 2, 2, length, d) for length in (m, n, n))
            added = {"": None, "float": torch.randn(m, n).to(dtype), "bool": torch.rand(m, n) > 0.3}[mask]
            return (q, k, v, added), kwargs

        return arguments

    for d in (64, 128, 100):
        # head size 64: three blocks of up to 192 queries, of which a role then has none; keys that go round the rings, and that do not
        sizes = ((400, 203), (400, 460)) if d == 64 else ((190, 203), (270, 203))
        yield FaultCase("mha", f"bfloat16-{d}-full", tuple(call(BF16, m, n, d) for m, n in sizes))
        yield FaultCase(
            "mha",
            f"bfloat16-{d}-causal",
            tuple(call(BF16, m, n, d, is_causal=True) for m, n in ((190, 203), (270, 270), (190, 77))),
        )
    for causal in (False, True):
        sizes = ((270, 203), (190, 77))
        yield FaultCase(
            "mha",
            f"bfloat16-256-{'causal' if causal else 'full'}",
            tuple(call(BF16, m, n, 200, is_causal=causal) for m, n in sizes),
        )
    yield FaultCase("mha", "bfloat16-64-short", (call(BF16, 5, 203, 64),))
    shared, alone = {"DECODE_HEADS": 2**31}, {"DECODE_HEADS": 1}  # programs that share a head's keys, or not
    few = tuple(call(BF16, 3, keys, 48) for keys in (1100, 300))
    yield FaultCase("mha", "bfloat16-64-decode", few, (shared, alone))
    yield FaultCase("mha", "bfloat16-64-mask", (call(BF16, 70, 203, 64, "float"),))
    yield FaultCase("mha", "float32-64-bool", (call(F32, 70, 90, 60, "bool"),))
    yield FaultCase("mha", "float32-64", (call(F32, 70, 90, 60),))


def _repacked() -> Iterator[FaultCase]:
    for format in Format:
        columns = 8 if format in BESIDE else 67  # so few that what is read too much lies outside
        yield FaultCase("repack", format.name, (lambda f=format, n=columns: (given(f, n, 512, group=128), {}),))


def _quantized_products() -> Iterator[FaultCase]:
    for kind in quantized_cases.KINDS:
        sizes = [
            (rows, columns, False) for rows in (5, 12, 20) for columns in (67, 128)
        ]  # more rows go through kernels of matmul
        for rows, columns, int8 in (*sizes, (5, 67, True), (20, 67, True)):
            calls = (quantized_cases.call(kind, (rows,), columns, 1344, bias=bias, int8=int8) for bias in (True, False))
            label = f"{kind}, {rows} rows, {columns}{' int8' if int8 else ''}"
            yield FaultCase("quantized_matmul", label, tuple(_in(BF16, call) for call in calls))


def _in(dtype: torch.dtype, call: Callable[[], Arguments]) -> Callable[[], Arguments]:
    """Returns a call whose plain tensors have a dtype."""
    return Case("", "", dtype, call).arguments


def fault_cases() -> list[FaultCase]:
    return [
        *_row_wise(), *_cached(), *_chosen(), *_products(), *_scaled_products(), *_attention(), *_repacked(), *_quantized_products()
    ]  # fmt: skip
