"""`python -m tests.inductor.agree MODEL`: compiles a model by Inductor for the CPU with kernelpack as Triton, and compares with eager; `train`
does a step of training."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F

from benchmarks.inductor import inductor
from benchmarks.inductor_models import GPT, MODELS, example


def main(name: str) -> None:
    torch.manual_seed(0)
    if name == "train":
        train()
        return
    model, given = MODELS[name]().eval().requires_grad_(False), example(name)
    torch.testing.assert_close(inductor(model, (given,), "triton")(given), model(given), atol=2e-4, rtol=2e-4)


def train() -> None:
    """Compares the loss and all gradients of a step."""
    from kernelpack import as_triton

    as_triton.install()
    import torch._inductor.config as config

    model, tokens = GPT(layers=2, width=128, heads=4), example("GPT")

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def step(call) -> list[torch.Tensor]:
        model.zero_grad()
        found = call(tokens)
        found.backward()
        return [found.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    with config.patch(cpu_backend="triton", compile_threads=1):
        torch.testing.assert_close(step(torch.compile(loss, fullgraph=True)), step(loss), atol=1e-4, rtol=1e-3)


if __name__ == "__main__":
    main(sys.argv[1])
