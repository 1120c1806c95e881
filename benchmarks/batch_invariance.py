"""What batch_invariant=True costs: ops with it beside the same ops without it. A ratio below 1 is a cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import DTYPES, OURS, Case, Prepared
from benchmarks.quantized_matmul import q4_1_blocks
from benchmarks.report import main
from ops.repack import Format

_WITHOUT = "any batch"
_BLOCK = 64


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [2], 128, [2], [300]))
    if device == "cpu":
        return list(_cases(device, ["fp32", "bf16"], [1, 4, 16, 64], 2048, [1, 8], [1024, 8192]))
    return list(_cases(device, ["bf16"], [1, 16, 64, 512], 4096, [1, 16], [1024, 32768]))


def _cases(
    device: str, dtypes: list[str], rows: list[int], size: int, batches: list[int], lengths: list[int]
) -> Iterator[Case]:
    for dtype, count in product(dtypes, rows):
        for op in ("matmul", "quantized_matmul"):
            yield _case(device, op, dtype, {"rows": count, "size": size}, f"{count} rows {size}", 2 * count * size * size / 1e9)
    for op, dtype, batch, keys in product(("mha", "paged_attention", "mla_decode"), dtypes, batches, lengths):
        work = batch * keys * (576 if op == "mla_decode" else 2 * 8 * 128) * DTYPES[dtype].itemsize / 1e9
        yield _case(device, op, dtype, {"batch": batch, "keys": keys}, f"batch {batch} keys {keys}", work)


def _case(device: str, op: str, dtype: str, arguments: dict[str, Any], name: str, work: float) -> Case:
    unit = "GFLOP/s" if "rows" in arguments else "GB/s"
    return Case(
        f"{op} {dtype} {name}", unit, work, device, (_WITHOUT,), op, 1, arguments | {"dtype": dtype}, graph=device == "cuda"
    )


def prepare(case: Case) -> Prepared:
    def call(invariant: bool) -> Callable[..., Tensor]:
        return lambda *given: _CALLS[case.op][1](given, invariant, case.arguments)

    return Prepared(lambda: _CALLS[case.op][0](case), {OURS: call(True), _WITHOUT: call(False)})


def _made(case: Case) -> Callable[..., Tensor]:
    return lambda *shape: torch.randn(shape, device=case.device, dtype=DTYPES[case.arguments["dtype"]])


def _matrices(case: Case) -> tuple[Tensor, ...]:
    rows, size = case.arguments["rows"], case.arguments["size"]
    make = _made(case)
    return make(rows, size), make(size, size).T


def _quantized(case: Case) -> tuple[Tensor, ...]:
    rows, size = case.arguments["rows"], case.arguments["size"]
    return _made(case)(rows, size), *torch.ops.kernelpack.repack(q4_1_blocks(size, size, case.device), Format.Q4_1)


def _dense(case: Case) -> tuple[Tensor, ...]:
    batch, keys = case.arguments["batch"], case.arguments["keys"]
    make = _made(case)
    return make(batch, 32, 1, 128), make(batch, 8, keys, 128), make(batch, 8, keys, 128)


def _tables(case: Case) -> tuple[Tensor, ...]:
    batch, keys = case.arguments["batch"], case.arguments["keys"]
    pages = -(-keys // _BLOCK)
    table = torch.randperm(batch * pages).int().view(batch, pages)
    numbers = torch.arange(batch + 1, dtype=torch.int32), torch.full((batch,), keys, dtype=torch.int32)
    return tuple(x.to(case.device) for x in (table, *numbers))


def _paged(case: Case) -> tuple[Tensor, ...]:
    table, *numbers = _tables(case)
    caches = (_made(case)(table.numel(), _BLOCK, 8, 128) for _ in range(2))
    return _made(case)(table.shape[0], 32, 128), *caches, table, *numbers


def _latent(case: Case) -> tuple[Tensor, ...]:
    table, *numbers = _tables(case)
    return _made(case)(table.shape[0], 16, 576), _made(case)(table.numel(), _BLOCK, 576), table, *numbers


def _bounds(arguments: dict[str, Any]) -> dict[str, int]:
    return {"max_query_length": 1, "max_key_length": arguments["keys"]}


ops = torch.ops.kernelpack
_CALLS: dict[str, tuple[Callable[[Case], tuple[Tensor, ...]], Callable[..., Tensor]]] = {
    "matmul": (_matrices, lambda given, invariant, _: ops.matmul(*given, batch_invariant=invariant)),
    "quantized_matmul": (_quantized, lambda given, invariant, _: ops.quantized_matmul(*given, batch_invariant=invariant)),
    "mha": (_dense, lambda given, invariant, _: ops.mha(*given, enable_gqa=True, batch_invariant=invariant)),
    "paged_attention": (
        _paged, lambda given, invariant, asked: ops.paged_attention(*given, **_bounds(asked), batch_invariant=invariant)[0],
    ),
    "mla_decode": (
        _latent,
        lambda given, invariant, asked: ops.mla_decode(*given, **_bounds(asked), scale=192**-0.5, batch_invariant=invariant)[0],
    ),
}  # fmt: skip

if __name__ == "__main__":
    main("benchmarks.batch_invariance")
