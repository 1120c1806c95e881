"""What the language model is held to: its texts and logits against plain torch, its int8 products against those of float32, its speed.

`python -m serving_examples.language_model.measure [--library FOLDER] [--prompts N] [--tokens N] [--llama PYTHON]`, where PYTHON has
llama-cpp-python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch.nn import functional

import kernelpack
from ops._quantized_weights import dequantize
from serving_examples.language_model.generate import Cache, continued, generate, read
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.model import Llama, Quantized
from serving_examples.language_model.tokens import chat, model_file, tokenizer_of
from serving_examples.language_model.torch_model import TorchModel

FOLDER = Path(__file__).parent
BLOCK = 32
"""Elements of an activation that share a scale in int8 products."""


@dataclass(frozen=True)
class Comparison:
    """How a text and its logits compare to another model's. `parted`: before which new token the models choose differently, None where
    they never do; `gap`: how far the other model's two largest logits are apart there; `error`: the largest difference of logits up to
    there."""

    parted: int | None
    gap: float
    error: float


def compare(ours: Tensor, theirs: Tensor) -> Comparison:
    """Compares logits [tokens, vocabulary] that two models have for one text, which follows the largest of `ours`."""
    differ = (ours.argmax(-1) != theirs.argmax(-1)).nonzero().flatten().tolist()
    parted = differ[0] if differ else None
    first, second = theirs[parted or 0].topk(2).values.tolist()
    error = float((ours - theirs)[: len(ours) if parted is None else parted + 1].abs().max())
    return Comparison(parted, 0.0 if parted is None else first - second, error)


def rounded(x: Tensor) -> Tensor:
    """Returns activations as int8 products take them: each 32 of a row as multiples of 1/127 of the largest of them."""
    blocks = x.unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    return (torch.where(scale > 0, blocks / scale, 0.0).round() * scale).flatten(-2)


def linear_of_rounded(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(rounded(x), weight)


def linear_in_float64(x: Tensor, weight: Tensor) -> Tensor:
    """The same with sums in float64: how far rounding carries a difference in the last bit."""
    return functional.linear(rounded(x).double(), weight.double()).float()


class Held:
    """Holds each int8 product of a model to torch's for the same input; `worst` is the largest relative error."""

    def __init__(self, model: Llama) -> None:
        self.worst = 0.0
        for module in model.modules():
            if isinstance(module, Quantized):
                module.register_forward_hook(self._compare)

    def _compare(self, product: Quantized, inputs: tuple[Tensor, ...], got: Tensor) -> None:
        weight = dequantize(product.codes, product.scales, product.mins, columns=product.columns)
        right = linear_of_rounded(inputs[0], weight)
        self.worst = max(self.worst, float((got - right).norm() / right.norm()))


def divergence(exact: Tensor, other: Tensor) -> float:
    """Returns the mean over rows of the Kullback-Leibler divergence of logits [rows, vocabulary] from exact ones, in nats."""
    exact, other = exact.double().log_softmax(-1), other.double().log_softmax(-1)
    return float((exact.exp() * (exact - other)).sum(-1).mean())


def text_of(model: Llama, prompt: list[int], count: int) -> tuple[list[int], Tensor]:
    """Returns the new tokens after a prompt, and the logits by which each was chosen."""
    logits = torch.cat(list(continued(model, [prompt], count)))
    return logits.argmax(-1).tolist(), logits


def after(prompt: list[int], text: list[int], logits: Tensor) -> Tensor:
    """Returns of the logits after each token those by which the text's tokens are chosen."""
    return logits[len(prompt) - 1 : len(prompt) + len(text) - 1]


def hold_to(
    model: Llama, exact: TorchModel, prompts: Sequence[list[int]], count: int
) -> Iterator[tuple[list[int], Comparison]]:
    """Yields the model's text for each prompt, and how it compares to what a torch model would choose."""
    for prompt in prompts:
        text, ours = text_of(model, prompt, count)
        yield text, compare(ours, after(prompt, text, exact(prompt + text)[0]))


def llama_logits(python: str, file: Path, texts: Sequence[list[int]]) -> list[Tensor]:
    """Returns llama.cpp's logits after each token of each text, on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps(texts))
        subprocess.run([python, FOLDER / "llama_logits.py", file, folder], check=True)
        return [torch.from_numpy(numpy.load(Path(folder) / f"{number}.npy")) for number in range(len(texts))]


def seconds_a_token(step: Callable[[], object], count: int = 20) -> float:
    """Returns the median time of a step."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return sorted(times)[count // 2]


def speeds(models: dict[str, Llama], exact: TorchModel, prompt: list[int]) -> Iterator[tuple[str, float, float]]:
    """Yields each model's name, its new tokens a second after a prompt, and the tokens a second of a prompt of 512."""
    long = (prompt * (512 // len(prompt) + 1))[:512]
    for name, model in models.items():
        cache = Cache(model.config, 1, len(prompt) + 64)
        read(model, cache, [prompt])
        decode = seconds_a_token(lambda model=model, cache=cache: read(model, cache, [[17]]))
        yield name, 1 / decode, 512 / seconds_a_token(lambda model=model: read(model, Cache(model.config, 1, 512), [long]), 3)
    past = exact(prompt)[1]
    decode = seconds_a_token(lambda: exact([17], past))
    yield "torch float32", 1 / decode, 512 / seconds_a_token(lambda: exact(long), 3)


def say(name: str, found: Sequence[Comparison]) -> None:
    """Prints how texts compare."""
    parted = sorted((one.parted, one.gap) for one in found if one.parted is not None)
    print(
        f"{name}: {len(found) - len(parted)} of {len(found)} texts equal, logits within {max(one.error for one in found):.2g}"
    )
    if parted:
        places = f"{parted[0][0]} to {parted[-1][0]}, median {parted[len(parted) // 2][0]}"
        print(
            f"  they part before token {places}, where torch's two largest logits are up to {max(gap for _, gap in parted):.2g} apart"
        )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--llama", metavar="PYTHON")
    parser.add_argument("--library", metavar="FOLDER", help="the folder of a library that holds the ops")
    given = parser.parse_args(arguments)
    if given.library:
        kernelpack.load(given.library)
    torch.set_num_threads(1)
    file = File(model_file())
    tokenizer = tokenizer_of(file)
    prompts = [chat(tokenizer, line) for line in (FOLDER / "prompts.txt").read_text().splitlines()[: given.prompts]]
    exact, model, int8 = TorchModel(file), Llama(file), Llama(file, "int8")

    found = list(hold_to(model, exact, prompts, given.tokens))
    say("float32 against torch", [one for _, one in found])
    texts = [text for text, _ in found]
    together = generate(model, prompts, given.tokens)
    print(f"in one batch: {sum(one == other for one, other in zip(together, texts, strict=True))} texts equal to those alone")
    checked = Llama(file, "int8")
    held = Held(checked)
    read(checked, Cache(checked.config, len(prompts), max(map(len, prompts))), prompts)
    print(f"int8: each product within {held.worst:.2g} of torch's for the same input")
    rounding = TorchModel(file, linear=linear_of_rounded)
    same = list(hold_to(int8, rounding, prompts, given.tokens))
    say("int8 against torch with the same rounding", [one for _, one in same])
    other = TorchModel(file, linear=linear_in_float64)
    say("torch with that rounding against itself, sums in float64", [
        compare(*(after(prompt, text, one(prompt + text)[0]) for one in (other, rounding)))
        for prompt, (text, _) in zip(prompts, same, strict=True)
    ])  # fmt: skip

    whole = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    llama = llama_logits(given.llama, model_file(), whole) if given.llama else []
    ours, theirs = [], []
    for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        right = after(prompt, text, exact(prompt + text)[0])
        cache = Cache(int8.config, 1, len(prompt) + len(text))
        ours.append(divergence(right, after(prompt, text, read(int8, cache, [prompt + text], every=True))))
        if llama:
            theirs.append(divergence(right, after(prompt, text, llama[number])))
    print(f"int8: mean divergence from float32 {sum(ours) / len(ours):.5f} nats")
    if theirs:
        print(f"llama.cpp: mean divergence from float32 {sum(theirs) / len(theirs):.5f} nats")
    for name, new, prompt_speed in speeds({"float32": model, "int8": int8}, exact, prompts[0]):
        print(f"{name}: {new:.1f} new tokens a second, {prompt_speed:.0f} of a prompt of 512")


if __name__ == "__main__":
    with torch.inference_mode():
        main(sys.argv[1:])
