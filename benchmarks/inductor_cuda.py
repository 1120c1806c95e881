"""What Inductor compiles for an NVIDIA GPU: with kernelpack as its Triton, beside Triton. Models, kernels of their forms, flex attention."""

from __future__ import annotations

import importlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.inductor import add_rms_norm, layer_norm_gelu
from benchmarks.inductor_models import MODELS, rotated
from benchmarks.measure import DTYPES, INDUCTOR_TRITON, OURS, Case, Prepared
from benchmarks.report import main
from kernelpack import as_triton

ROWS, COLUMNS = 8192, 4096
Made = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, up)), down)


def cross_entropy(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), torch.arange(logits.shape[0], device=logits.device) % logits.shape[1])


KERNELS: dict[str, Made] = {
    "softmax": (lambda x: x.softmax(-1), ((ROWS, COLUMNS),)),
    "layer_norm gelu": (layer_norm_gelu, ((ROWS, COLUMNS), (COLUMNS,))),
    "silu mul": (lambda gate, up: F.silu(gate) * up, ((ROWS, COLUMNS),) * 2),
    "add rms_norm": (add_rms_norm, ((ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS,))),
    "rope": (rotated, ((2048, 32, 128), (2048, 1, 64), (2048, 1, 64))),
    "transpose add": (lambda x, y: x.t() + y, ((COLUMNS, COLUMNS),) * 2),
    "sum of columns": (lambda x: x.sum(0), ((ROWS, COLUMNS),)),
    "sum of rows": (lambda x: x.sum(1), ((ROWS, COLUMNS),)),
    "mean and variance": (lambda x: torch.var_mean(x.float(), -1), ((ROWS, COLUMNS),)),
    "cumsum": (lambda x: x.float().cumsum(1), ((COLUMNS, COLUMNS),)),
    "cross entropy": (cross_entropy, ((COLUMNS, 32000),)),
    "sort": (lambda x: x.sort(-1).values, ((COLUMNS, 256),)),
}
STEPS: dict[str, Made] = {"mlp step": (mlp, ((COLUMNS, 1024), (4096, 1024), (1024, 4096)))}
INPUTS = {"ResNet": lambda: torch.randn(32, 3, 224, 224), "": lambda: torch.randint(0, 1000, (8, 512))}
FLEX = (4, 16, 2048, 64)
"""Batch, heads, length, size of a head."""


def cases(device: str, quick: bool) -> Sequence[Case]:
    if device != "cuda":
        raise SystemExit("benchmarks.inductor_cuda is for GPUs; to fix: --device cuda, or benchmarks.inductor")
    names = ["softmax"] if quick else [*KERNELS, *STEPS, *MODELS, "flex causal", "flex alibi", "flex causal step"]
    return [
        Case(f"{name} bf16", "calls/s", 1, "cuda", (INDUCTOR_TRITON,), arguments={"name": name}, graph=_in_graph(name))
        for name in names
    ]


def _in_graph(name: str) -> bool:
    """Backward passes start on streams that a graph does not see."""
    return name in KERNELS or name in MODELS


def prepare(case: Case) -> Prepared:
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor-"))  # one for each process
    if os.environ.get("KERNELPACK_AS_TRITON") != "0":
        as_triton.install()  # before Inductor looks for Triton
    name = case.arguments["name"]
    if name in MODELS:
        model = MODELS[name]().eval().requires_grad_(False).cuda().bfloat16()
        example = INPUTS.get(name, INPUTS[""])().cuda()
        example = example.bfloat16() if example.is_floating_point() else example
        return _prepared(model, lambda: (example,), False)
    if name.startswith("flex"):
        return _prepared(*_flex(name), "step" in name)
    call, shapes = (KERNELS | STEPS)[name]
    return _prepared(
        call, lambda: tuple(torch.randn(shape, device="cuda", dtype=DTYPES["bf16"]) for shape in shapes), "step" in name
    )


def _flex(name: str) -> tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]:
    """Returns a call of flex_attention, and its inputs."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length = FLEX[2]
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cuda")

    def alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score + (k - q) * torch.exp2(-(h + 1) / 2.0)

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=alibi) if "alibi" in name else flex_attention(q, k, v, block_mask=mask)

    return forward, lambda: tuple(torch.randn(FLEX, device="cuda", dtype=DTYPES["bf16"]) for _ in range(3))


def _prepared(call: Callable[..., Any], inputs: Callable[[], tuple[Tensor, ...]], step: bool) -> Prepared:
    """Returns a contender under both names: each is called in a process of its own, where it is compiled at its first call. With `step`
    the backward pass is called too, and gives the gradients of all inputs; the first input stands for the result's."""
    compiled = torch.compile(call, dynamic=False, fullgraph=True)
    calls = itertools.count()

    def run(of: Callable[..., Any], *given: Tensor) -> Any:
        if not step:
            found = of(*given)
            return found[0] if isinstance(found, (list, tuple)) and len(found) == 1 else found
        leaves = [tensor.detach().requires_grad_() for tensor in given]
        return torch.autograd.grad(of(*leaves), leaves, leaves[0].detach())

    def timed(*given: Tensor) -> Any:
        if next(calls):
            return run(compiled, *given)
        started = time.perf_counter()
        found = run(compiled, *given)
        torch.cuda.synchronize()
        who = importlib.import_module("triton").__file__
        print(f"  {time.perf_counter() - started:.1f} s until the first result by {who}", flush=True)
        return found

    return Prepared(inputs, {OURS: timed, INDUCTOR_TRITON: timed}, partial(run, call))


if __name__ == "__main__":
    main("benchmarks.inductor_cuda")
