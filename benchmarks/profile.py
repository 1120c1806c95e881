"""A profile of a model step on a GPU: what stands between kernels, with kernelpack's ops, torch's with cuDNN, and Triton's JIT.

The model is an encoder of bf16: layer norm, attention (head size 128) and gelu by each of the three, matrix products by torch. What
counts is the time between the end of a kernel and the start of the next one on the GPU; `--picture` draws one layer of each.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch.autograd import DeviceType
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import OURS
from benchmarks.report import Row, Table, arguments, write_json
from benchmarks.same_source import PEER as TRITON
from benchmarks.same_source import load_kernels
from kernelpack import next_power_of_2

Tensor = torch.Tensor
CUDNN = "cudnn"
LAYERS, HEADS, HEAD, STEPS = 4, 8, 128, 5
WIDTH = HEADS * HEAD
COLOURS = {"layer norm": "#4e79a7", "attention": "#e15759", "gelu": "#59a14f", "other": "#bab0ac"}


@dataclass(frozen=True)
class Ops:
    """What the contenders differ in; attention takes [batch, heads, length, HEAD]."""

    layer_norm: Callable[[Tensor, Tensor, Tensor], Tensor]
    attention: Callable[[Tensor, Tensor, Tensor], Tensor]
    gelu: Callable[[Tensor], Tensor]


def kernelpack_ops() -> Ops:
    ops = torch.ops.kernelpack
    return Ops(lambda x, w, b: ops.layer_norm(x, w, b, 1e-5), lambda q, k, v: ops.mha(q, k, v), lambda x: ops.gelu(x))


def cudnn_ops() -> Ops:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v)

    return Ops(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), attention, F.gelu)


def triton_ops(kernels: ModuleType) -> Ops:
    """The kernels of same_source_kernels.py, launched by Triton's JIT; gelu is torch's."""

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        out, mean, scale = torch.empty_like(x), *(x.new_empty(rows, dtype=torch.float32) for _ in range(2))
        kernels.layer_norm[(rows,)](x, weight, bias, out, mean, scale, columns, columns, 1e-5, BLOCK=next_power_of_2(columns))
        return out

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, heads, length, head = q.shape
        out = torch.empty_like(q)
        strides = [stride for x in (q, k, v, out) for stride in x.stride()[:3]]
        kernels.attention[lambda meta: (-(-length // meta["BLOCK_M"]), batch * heads)](
            q, k, v, out, 1 / math.sqrt(head), heads, length, length, *strides, HEAD=head, CAUSAL=False
        )  # fmt: skip
        return out

    return Ops(layer_norm, attention, F.gelu)


class Encoder:
    """LAYERS layers before whose parts the profiler is told their names."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        def weight(*shape: int) -> Tensor:
            return (torch.randn(shape, device=device) * shape[0] ** -0.5).to(dtype)

        self.scale, self.shift = weight(WIDTH), weight(WIDTH)
        self.qkv, self.merge = weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH)
        self.grow, self.shrink = weight(WIDTH, 4 * WIDTH), weight(4 * WIDTH, WIDTH)

    def __call__(self, ops: Ops, x: Tensor) -> Tensor:
        """Returns what the encoder makes of x [batch, length, WIDTH]."""
        for _ in range(LAYERS):
            h = ops.layer_norm(x, self.scale, self.shift)
            q, k, v = (h @ self.qkv).unflatten(-1, (3, HEADS, HEAD)).permute(2, 0, 3, 1, 4)
            a = ops.attention(q, k, v).transpose(1, 2).reshape(x.shape)
            x = x + a @ self.merge
            x = x + ops.gelu(ops.layer_norm(x, self.scale, self.shift) @ self.grow) @ self.shrink
        return x


@dataclass(frozen=True)
class Kernel:
    """A kernel on the GPU's time line, in seconds."""

    part: str
    begin: float
    end: float


def part_of(name: str) -> str:
    """Returns which part of the encoder a kernel belongs to, by its name."""
    name = name.lower()
    known = {
        "layer norm": ("layer_norm", "layernorm"),
        "attention": ("mha", "attention", "cudnn", "fmha", "flash"),
        "gelu": ("gelu",),
    }
    return next((part for part, words in known.items() if any(word in name for word in words)), "other")


def record(step: Callable[[], object]) -> list[Kernel]:
    """Returns the kernels of STEPS steps, in order."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as measured:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    found = [event for event in measured.events() if event.device_type == DeviceType.CUDA]
    kernels = [Kernel(part_of(e.name), e.time_range.start / 1e6, e.time_range.end / 1e6) for e in found]
    return sorted(kernels, key=lambda kernel: kernel.begin)


def gaps(kernels: Sequence[Kernel], part: str) -> list[float]:
    """Returns what the GPU waits before and after each kernel of `part`, in seconds."""
    pairs = pairwise(kernels)
    return [max(after.begin - before.end, 0.0) for before, after in pairs if part in (before.part, after.part)]


def busy(kernels: Sequence[Kernel], part: str) -> float:
    """Returns how long the kernels of `part` run in a step, in seconds."""
    return sum(kernel.end - kernel.begin for kernel in kernels if kernel.part == part) / STEPS


def picture(layers: dict[str, list[Kernel]]) -> str:
    """Returns an SVG of a layer of each contender, all to one scale."""
    width, row, left = 1200, 46, 110
    span = max(layer[-1].end - layer[0].begin for layer in layers.values())
    height = row * len(layers) + 64
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    scale = (width - left - 20) / span
    for index, (name, layer) in enumerate(layers.items()):
        y = 12 + index * row
        lines.append(f'<text x="8" y="{y + 22}">{escape(name)}</text>')
        for kernel in layer:
            x = left + (kernel.begin - layer[0].begin) * scale
            title = f"{kernel.part}: {(kernel.end - kernel.begin) * 1e6:.1f} us"
            lines.append(
                f'<rect x="{x:.2f}" y="{y}" width="{(kernel.end - kernel.begin) * scale:.2f}" height="32" '
                f'fill="{COLOURS[kernel.part]}"><title>{title}</title></rect>'
            )
    y = 12 + len(layers) * row
    lines.append(f'<text x="{left}" y="{y + 12}">0</text>')
    lines.append(f'<text x="{width - 20}" y="{y + 12}" text-anchor="end">{span * 1e6:.0f} us</text>')
    for index, (part, colour) in enumerate(COLOURS.items()):
        x = left + index * 150
        lines.append(f'<rect x="{x}" y="{y + 24}" width="14" height="14" fill="{colour}"/>')
        lines.append(f'<text x="{x + 20}" y="{y + 36}">{"matrix products, sums, copies" if part == "other" else part}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def one_layer(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Returns the kernels of the last whole layer: from a layer norm to the third after it, which belongs to the next layer."""
    starts = [index for index, kernel in enumerate(kernels) if kernel.part == "layer norm"]
    return list(kernels[starts[-4] : starts[-2]])


def main(argv: Sequence[str] | None = None) -> None:
    parser: argparse.ArgumentParser = arguments("benchmarks.profile")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw one layer of each there, as SVG")
    asked = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; to fix: run on a machine with a GPU")
    contenders = {OURS: kernelpack_ops(), CUDNN: cudnn_ops(), TRITON: triton_ops(load_kernels(TRITON))}
    torch.manual_seed(0)
    encoder = Encoder("cuda", torch.bfloat16)
    x = torch.randn(2 if asked.quick else 8, 1024, WIDTH, device="cuda", dtype=torch.bfloat16)
    expected = encoder(contenders[CUDNN], x).float()
    timelines: dict[str, Sequence[Kernel]] = {}
    with torch.no_grad():
        for name, ops in contenders.items():
            error = (encoder(ops, x).float() - expected).abs().max().item()
            assert error <= 0.05 * expected.abs().max().item(), f"{name} differs from cudnn by {error:.3g}"
            timelines[name] = record(functools.partial(encoder, ops, x))
    parts = ("attention", "layer norm", "gelu")
    table = Table([f"median gap at {part}" for part in parts])
    for part in parts:
        ours = statistics.median(gaps(timelines[OURS], part))
        for peer in (CUDNN, TRITON):
            table.add(Row(f"median gap at {part}", "s", ours, peer, statistics.median(gaps(timelines[peer], part))))
    for part in COLOURS:
        for peer in (CUDNN, TRITON):
            table.add(Row(f"{part} in a step", "s", busy(timelines[OURS], part), peer, busy(timelines[peer], part)))
    layers = {name: one_layer(kernels) for name, kernels in timelines.items()}
    spans = {name: layer[-1].end - layer[0].begin for name, layer in layers.items()}
    for peer in (CUDNN, TRITON):
        table.add(Row("the layer drawn", "s", spans[OURS], peer, spans[peer]))
    if asked.picture is not None:
        asked.picture.write_text(picture(layers))
    if asked.json is not None:
        write_json(asked.json, "cuda", table.rows)


if __name__ == "__main__":
    main()
