"""What Inductor compiles for a CPU: with kernelpack as its Triton, beside its own C++ backend. Models, and kernels of their forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.inductor_models import MODELS, example, rotated
from benchmarks.measure import DTYPES, OURS, Case, Prepared
from benchmarks.report import main
from kernelpack import as_triton

CPP = "inductor C++"


def layer_norm_gelu(x: Tensor, scale: Tensor) -> Tensor:
    return F.gelu(F.layer_norm(x, scale.shape, scale, scale))


def add_rms_norm(x: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    added = x + y
    return added, F.rms_norm(added, scale.shape, scale)


KERNELS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax 1024x1000": (lambda x: x.softmax(-1), ((1024, 1000),)),
    "layer_norm gelu 2048x2048": (layer_norm_gelu, ((2048, 2048), (2048,))),
    "silu mul 512x1536": (lambda gate, up: F.silu(gate) * up, ((512, 1536),) * 2),
    "silu mul 1x1536": (lambda gate, up: F.silu(gate) * up, ((1, 1536),) * 2),
    "add rms_norm 512x576": (add_rms_norm, ((512, 576), (512, 576), (576,))),
    "add rms_norm 1x576": (add_rms_norm, ((1, 576), (1, 576), (576,))),
    "rope 512x9x64": (rotated, ((512, 9, 64), (512, 1, 32), (512, 1, 32))),
    "transpose add 1024x1024": (lambda x, y: x.t() + y, ((1024, 1024),) * 2),
    "sum of columns 1024x1024": (lambda x: x.sum(0), ((1024, 1024),)),
    "sum of rows 1024x1024": (lambda x: x.sum(1), ((1024, 1024),)),
    "cumsum 256x2000": (lambda x: x.cumsum(1), ((256, 2000),)),
}


def cases(device: str, quick: bool) -> Sequence[Case]:
    if device != "cpu":
        raise SystemExit("benchmarks.inductor is for CPUs; to fix: --device cpu")
    return list(_cases(["silu mul 1x1536"] if quick else [*MODELS, *KERNELS], ["fp32"] if quick else ["fp32", "bf16"]))


def _cases(names: list[str], dtypes: list[str]) -> Iterator[Case]:
    for threads, dtype, name in product((1, 2), dtypes, names):
        if dtype == "fp32" or name.startswith(("silu mul 512", "softmax")):
            yield Case(f"{name} {dtype} {threads}t", "calls/s", 1, "cpu", (CPP,), "", threads, {"name": name, "dtype": dtype})


def prepare(case: Case) -> Prepared:
    name, dtype = case.arguments["name"], DTYPES[case.arguments["dtype"]]
    if name in MODELS:
        call: Callable[..., Any] = MODELS[name]().eval().requires_grad_(False)
        inputs = (example(name),)
    else:
        call, shapes = KERNELS[name]
        inputs = tuple(torch.randn(shape, dtype=dtype) for shape in shapes)
    compiled = {who: inductor(call, inputs, backend) for who, backend in ((OURS, "triton"), (CPP, "cpp"))}
    return Prepared(lambda: inputs, compiled)


def inductor(call: Callable[..., Any], inputs: tuple[Tensor, ...], backend: str) -> Callable[..., Any]:
    """Returns what Inductor makes of a function or model for given inputs, called without Dynamo's checks of them."""
    as_triton.install()  # before Inductor looks for Triton
    import torch._inductor.config as config
    from torch._inductor.compile_fx import compile_fx
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad(), config.patch(cpu_backend=backend, compile_threads=1):
        graph = make_fx(call)(*inputs)
        made = compile_fx(graph, list(inputs))
        made(*inputs)

    def run(*given: Tensor) -> Any:
        with torch.no_grad():
            found = made(*given)
        results = tuple(found) if isinstance(found, (list, tuple)) else (found,)
        return results[0] if len(results) == 1 else results

    return run


if __name__ == "__main__":
    main("benchmarks.inductor")
