"""Choosing tokens from logits, beside the lines of torch that engines have for it: sort, cumsum, masks, softmax, noise, argmax; on GPUs beside
vLLM's Triton kernels too, where vllm and triton can be imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from benchmarks.engine_worlds import World
from benchmarks.measure import DTYPES, OURS, Case, Prepared, Result
from benchmarks.report import main
from ops.sample import reference

SMALL, LARGE = 49152, 128256
"""Vocabularies of SmolLM2 and of Llama 3."""


@dataclass(frozen=True)
class _Kind:
    """How tokens are chosen: settings by name, and the lines of torch that do the same with them."""

    settings: Mapping[str, Callable[[int, int], Tensor]]
    stock: Callable[..., Tensor | tuple[Tensor, Tensor]]
    drawn: bool = True
    logged: bool = False


VLLM = "vLLM"


@cache
def _of_vllm() -> Callable[..., Tensor] | None:
    """Returns what draws tokens by vLLM's kernels for temperature, top-k, top-p and the draw; None where they are not installed."""
    world = World("triton")
    try:
        tempered, kept, drawn = (
            world.function(f"vllm.v1.{place}")
            for place in (
                "worker.gpu.sample.gumbel:apply_temperature", "sample.ops.topk_topp_triton:apply_top_k_top_p_triton",
                "worker.gpu.sample.gumbel:gumbel_sample",
            )
        )  # fmt: skip
    except ImportError:
        return None

    def run(
        logits: Tensor,
        rows: Tensor,
        temperature: Tensor,
        top_k: Tensor | None = None,
        top_p: Tensor | None = None,
    ) -> Tensor:
        with world.entered():
            values = torch.empty_like(logits, dtype=torch.float32).copy_(logits)  # as its sampler does
            tempered(values, rows, temperature)
            result: Tensor = drawn(kept(values, top_k, top_p), rows, temperature, rows, rows, False, False)
            return result

    return run


def _full(value: float) -> Callable[[int, int], Tensor]:
    return lambda rows, columns: torch.full((rows,), value)


def _draw(values: Tensor) -> Tensor:
    """As torch.multinomial, without its checks: the largest of probabilities divided by exponential noise."""
    noise = torch.empty_like(values).exponential_()
    return values.softmax(-1).div_(noise).argmax(-1)


def _keep(values: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    values, order = values.sort(dim=-1, descending=False)
    if top_k is not None:
        least = values.gather(1, (values.shape[1] - top_k).unsqueeze(1))
        values.masked_fill_(values < least, -float("inf"))
    if top_p is not None:
        dropped = values.softmax(-1).cumsum(-1) <= 1 - top_p.unsqueeze(1)
        dropped[:, -1] = False
        values.masked_fill_(dropped, -float("inf"))
    return torch.empty_like(values).scatter_(-1, order, values)


def _logged(logits: Tensor) -> tuple[Tensor, Tensor]:
    tokens = logits.argmax(-1)
    return tokens, logits.float().log_softmax(-1).gather(1, tokens.unsqueeze(1)).squeeze(1)


def _kept(
    logits: Tensor, temperature: Tensor | None = None, top_k: Tensor | None = None, top_p: Tensor | None = None
) -> Tensor:
    values = logits.float()
    if temperature is not None:
        values = values / temperature.unsqueeze(1)
    return _draw(values if top_k is None and top_p is None else _keep(values, top_k, top_p))


def _penalized(
    logits: Tensor, prompt_mask: Tensor, output_counts: Tensor, repetition_penalty: Tensor, presence_penalty: Tensor,
    frequency_penalty: Tensor,
) -> Tensor:  # fmt: skip
    values, seen = logits.float(), output_counts > 0
    factor = torch.where(prompt_mask | seen, repetition_penalty.unsqueeze(1), 1.0)
    values = values * torch.where(values > 0, 1 / factor, factor)
    values -= frequency_penalty.unsqueeze(1) * output_counts
    values -= presence_penalty.unsqueeze(1) * seen
    return _draw(values)


_SOFT = {"temperature": _full(0.8)}
_TOP_K: dict[str, Callable[[int, int], Tensor]] = {"top_k": lambda rows, columns: torch.full((rows,), 50)}
_TOP_P = {"top_p": _full(0.9)}
KINDS = {
    "largest": _Kind({}, lambda logits: logits.argmax(-1), drawn=False),
    "largest, log-probability": _Kind({}, _logged, drawn=False, logged=True),
    "drawn": _Kind(_SOFT, _kept),
    "top-k": _Kind(_SOFT | _TOP_K, _kept),
    "top-p": _Kind(_SOFT | _TOP_P, _kept),
    "top-k, top-p": _Kind(_SOFT | _TOP_K | _TOP_P, _kept),
    "penalties": _Kind(
        {
            "prompt_mask": lambda rows, columns: torch.rand(rows, columns) < 0.01,
            "output_counts": lambda rows, columns: (torch.rand(rows, columns) < 0.01).int(),
            "repetition_penalty": _full(1.2), "presence_penalty": _full(0.1), "frequency_penalty": _full(0.1),
        },
        _penalized,
    ),
}  # fmt: skip


def cases(device: str, quick: bool) -> Sequence[Case]:
    if quick:
        return list(_cases(device, ["fp32"], [2], [5000]))
    return list(_cases(device, ["fp32", "bf16"], [1, 16] if device == "cpu" else [1, 64], [SMALL, LARGE]))


def _cases(device: str, dtypes: list[str], rows: list[int], columns: list[int]) -> Iterator[Case]:
    for kind, dtype, count, size in product(KINDS, dtypes, rows, columns):
        for threads in [1, 2] if device == "cpu" and count > 1 else [1]:
            name = f"{kind} {dtype} {count}x{size}" + (f" {threads}t" if device == "cpu" else "")
            arguments = {"kind": kind, "dtype": dtype, "rows": count, "columns": size}
            work = count * size * DTYPES[dtype].itemsize / 1e9
            vllm = device == "cuda" and "temperature" in KINDS[kind].settings and _of_vllm() is not None
            peers = ("stock torch", VLLM) if vllm else ("stock torch",)
            yield Case(name, "GB/s", work, device, peers, "sample", threads, arguments, graph=device == "cuda")


def prepare(case: Case) -> Prepared:
    kind, rows, columns = KINDS[case.arguments["kind"]], case.arguments["rows"], case.arguments["columns"]

    def inputs() -> tuple[Tensor, ...]:
        logits = (torch.randn(rows, columns, device=case.device) * 2).to(DTYPES[case.arguments["dtype"]])
        given = [make(rows, columns).to(case.device) for make in kind.settings.values()]
        return logits, torch.arange(rows, device=case.device), *given

    def chosen(run: Callable[..., tuple[Tensor, Tensor]], logits: Tensor, seeds: Tensor, *given: Tensor) -> Result:
        settings = dict(zip(kind.settings, given, strict=True))
        results = run(logits, seeds if kind.drawn else None, **settings, log_probabilities=kind.logged)
        return results if kind.logged else results[0]

    def stock(logits: Tensor, seeds: Tensor, *given: Tensor) -> Result | None:
        result = kind.stock(logits, **dict(zip(kind.settings, given, strict=True)))
        return None if kind.drawn else result  # draws by other random numbers

    def vllm(logits: Tensor, seeds: Tensor, *given: Tensor) -> None:
        run = _of_vllm()
        assert run is not None
        run(logits, seeds, **dict(zip(kind.settings, given, strict=True)))

    ours = torch.ops.kernelpack.sample
    contenders = {OURS: lambda *given: chosen(ours, *given), "stock torch": stock, VLLM: vllm}
    return Prepared(inputs, contenders, lambda *given: chosen(reference, *given))


if __name__ == "__main__":
    main("benchmarks.sampling")
