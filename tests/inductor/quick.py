"""`python -m tests.inductor.quick`: compiles five functions by Inductor for the CPU, with kernelpack as Triton; says what came out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import as_triton, knobs

MATMUL = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON", "test_configs.max_mm_configs": 1}


@kp.jit
def add_into(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) + tl.load(x + at, mask=at < n), mask=at < n)


@kp.jit
def store(p, v):
    tl.store(p, v)


@kp.jit
def reads_and_writes(read, written, added, both, count, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    i = 0
    while i < n:
        total += tl.load(read + i * BLOCK + at)
        i += 1
    for _ in range(n):
        total += 1
    store(written + at, total)
    if n > 3:
        tl.atomic_add(added, tl.sum(total))
        tl.store(both + at, tl.load(both + at) + 1)
    tl.atomic_cas(count, 0, 1)


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x) * y.sigmoid() + x.tanh()


def reduction(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.var(1), (x * y).sum(0)


def softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * 3).softmax(-1) + y


def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ y.t())


def user_kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = y * 2
    add_into[(4,)](x, out, x.numel(), 1024)
    return out.relu()


CASES: dict[Callable[..., Any], dict[str, Any]] = {pointwise: {}, reduction: {}, softmax: {}, matmul: MATMUL, user_kernel: {}}
TWICE = (pointwise, user_kernel)
"""Those that are compiled again, from FxGraphCache."""


def main() -> None:
    as_triton.install()  # before Inductor looks for Triton
    import torch._inductor.config as config
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache, run_and_get_code

    torch.manual_seed(0)
    inputs = torch.randn(50, 64), torch.randn(50, 64)
    compiled: list[bool] = []
    knobs.compilation.listener = lambda *event: compiled.append(not event[4])
    for function, settings in CASES.items():
        with config.patch(cpu_backend="triton", compile_threads=1, **settings), fresh_cache():
            expected = function(*inputs)
            compiled.clear()
            found, code = run_and_get_code(torch.compile(function, fullgraph=True), *inputs)
            first = sum(compiled)
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
            torch._dynamo.reset()
            counters.clear()
            compiled.clear()
            if function in TWICE:
                torch.testing.assert_close(torch.compile(function, fullgraph=True)(*inputs), expected, atol=2e-5, rtol=1e-5)
            hit = counters["inductor"]["fxgraph_cache_hit"]
            kernels = sum(text.count("async_compile.triton(") for text in code)
            print(json.dumps({"case": function.__name__, "kernels": kernels, "compiled": [first, sum(compiled)], "hit": hit}))
    from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors

    tensors = {name: torch.zeros(64) for name in ("read", "written", "added", "both")}
    arguments = {**tensors, "count": torch.zeros(1, dtype=torch.int32), "n": 5, "BLOCK": 16}
    found = identify_accessed_tensors(reads_and_writes, arguments, {}).read_writes
    print(
        json.dumps(
            {"case": "accesses", **{how: sorted(one.name for one in getattr(found, how)) for how in ("reads", "writes")}}
        )
    )


if __name__ == "__main__":
    main()
