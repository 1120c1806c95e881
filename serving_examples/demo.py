"""The demo: a sentence encoder served with kernelpack's ops, in Python, as TorchScript and as AOTInductor in C++.

Run by `make demo`, which builds an op library for this machine's CPU and names its folder; without an argument it is the one
that `make build` made. Exits with 1 if anything disagrees with the same model on plain torch ops.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

import kernelpack
from kernelpack.cli.terminal import Style, is_terminal, size, table
from kernelpack.errors import BuildError
from kernelpack.opgen.load import own_library
from kernelpack.pack.lock import read_lock
from serving_examples.sentence_encoder.export import export, save_aoti, save_batches, save_torchscript
from serving_examples.sentence_encoder.model import KERNELPACK, MINILM, TORCH, SentenceEncoder, load_encoder
from serving_examples.sentence_encoder.programs import build_program, run_program
from serving_examples.sentence_encoder.tokens import model_folder, tokenize

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "demo"
WIDTH = 80
STYLE = Style(sys.stdout)
TOLERANCE = 1e-5  # of embeddings, whose length is 1; the C++ programs have the same


def main() -> int:
    started = time.perf_counter()
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else own_library()
    try:
        kernelpack.load(folder)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    library = folder / "libkernelpack_ops.so"
    heading("1  The op library")
    kernels = Counter(target for target, _ in read_lock(folder / "ops.lock").hashes)
    print(f"  {library.relative_to(ROOT)}: {size(library.stat().st_size)}, kernels for")
    for target, number in sorted(kernels.items()):
        print(f"  {number:>6}  {target}")

    heading("2  Embed a page of sentences")
    try:
        weights = model_folder() / "model.safetensors"
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    ours, theirs = load_encoder(KERNELPACK, weights), load_encoder(TORCH, weights)
    sentences = (Path(__file__).parent / "page.txt").read_text().splitlines()
    page = tokenize(sentences, MINILM)
    agree = show_similarities(sentences, ours(page), theirs(page))

    heading("3  Save the model, once for every batch and 1 to 512 tokens")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with timed("TorchScript: build/demo/encoder.pt"):
        save_torchscript(ours, FOLDER / "encoder.pt")
    with timed("AOTInductor: build/demo/encoder.pt2"):
        save_aoti(export(ours, MINILM.positions), FOLDER / "encoder.pt2")
    batches = [running_text(page, 1, 1), running_text(page, 1, 8), page, running_text(page, 8, 128), running_text(page, 2, 512)]
    save_batches([(tokens, ours(tokens)) for tokens in batches], FOLDER / "batches.txt")

    heading("4  Serve it from C++, with no Python in the process")
    for name, file in (("torchscript_cpp", "encoder.pt"), ("aoti_cpp", "encoder.pt2")):
        with timed(f"g++ serving_examples/{name}/serve.cpp"):
            program = build_program(name, FOLDER)
        print(f"  build/demo/{name} {library.name} {file} batches.txt")
        done = run_program(program, library, FOLDER / file, FOLDER / "batches.txt")
        print(done.stdout + done.stderr, end="")
        agree = verdict(done.returncode == 0, "the embeddings are Python's", "the program failed") and agree

    heading("5  Speed beside torch: the same process, calls in turn, medians")
    show_speed(ours, theirs, batches)

    minutes, seconds = divmod(round(time.perf_counter() - started), 60)
    heading(f"{'Done' if agree else 'FAILED'} after {minutes} min {seconds} s")
    return 0 if agree else 1


def heading(text: str) -> None:
    """Prints a step's title in a line that spans the terminal."""
    print(f"\n{STYLE.bold(text)} {STYLE.dim('─' * (WIDTH - len(text) - 1))}", flush=True)


@contextmanager
def timed(label: str) -> Iterator[None]:
    """Prints how long a block took; on a terminal it says beforehand what one waits for."""
    if is_terminal(sys.stdout):
        print(f"  {label} ...", end="\r", flush=True)
    start = time.perf_counter()
    yield
    print(f"  {label:<{WIDTH - 14}}{time.perf_counter() - start:>8.1f} s", flush=True)


def verdict(good: bool, yes: str, no: str) -> bool:
    """Prints which of both is true, and returns whether it is the good one."""
    print(f"  {STYLE.green('agrees:')} {yes}" if good else f"  {STYLE.red('DISAGREES:')} {no}", flush=True)
    return good


def show_similarities(sentences: list[str], ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Prints both models' cosine similarities side by side; returns whether the embeddings agree."""
    for number, sentence in enumerate(sentences, 1):
        print(f"  {number:>2}  {sentence}")
    count = len(sentences)
    numbers = "".join(f"{i:>3}" for i in range(1, count + 1))
    print(f"\n      {'similarity, %: kernelpack':<{3 * count}}  plain torch ops\n      {numbers}  {numbers}")
    for row in range(count):
        left, right = (
            "".join(percent(value) if column != row else "  ·" for column, value in enumerate((model[row] @ model.T).tolist()))
            for model in (ours, theirs)
        )
        print(f"  {row + 1:>2}  {left}  {right}")
    largest = (ours - theirs).abs().max().item()
    said = f"largest difference between two embeddings {largest:.1e} (tolerance {TOLERANCE:.0e})"
    print()
    return verdict(largest <= TOLERANCE, said, said)  # NaN disagrees


def percent(similarity: float) -> str:
    """Returns a similarity in percent, three characters wide; in colour, what is alike stands out."""
    text = f"{round(similarity * 100, 0) + 0.0:3.0f}"  # + 0.0: no -0
    return STYLE.green(text) if similarity >= 0.3 else STYLE.dim(text)


def running_text(page: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Returns a batch of `columns` tokens of the page's text, each row begun at another sentence."""
    marks = (page[0, 0].item(), page[page != MINILM.padding][-1].item())  # what opens and closes a sentence
    lines = [[token for token in line if token not in (*marks, MINILM.padding)] for line in page.tolist()]
    made = []
    for row in range(rows):
        text = [token for line in lines[row % len(lines) :] + lines for token in line]
        text = (text * (columns // len(text) + 1))[: max(columns - 2, 0)]
        made.append([marks[0], *text, marks[1]][:columns])
    return torch.tensor(made)


def alternate(first: Callable[[], object], second: Callable[[], object], seconds: float = 1.0) -> tuple[float, float]:
    """Returns the median times of two calls in milliseconds, measured in turn for about `seconds`."""
    times: tuple[list[float], list[float]] = ([], [])
    first(), second()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, list_ in zip((first, second), times, strict=True):
            start = time.perf_counter()
            call()
            list_.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def print_table(head: list[str], rows: list[list[str]]) -> None:
    first, *others = table(head, rows, columns=WIDTH)
    print("\n".join([STYLE.dim(first), *others, ""]))


def show_speed(ours: SentenceEncoder, theirs: SentenceEncoder, batches: list[torch.Tensor]) -> None:
    """Prints the times of whole models, and of the three ops alone in the shapes that they have in the model."""

    def row(name: str, first: Callable[..., object], second: Callable[..., object], *arguments: object) -> list[str]:
        mine, other = alternate(partial(first, *arguments), partial(second, *arguments))
        return [name, f"{mine:.3f}", f"{other:.3f}", f"{other / mine:.2f}x"]

    head = ["kernelpack ms", "torch ms", "ratio"]
    with torch.inference_mode():
        models = [row(f"{tokens.shape[0]} x {tokens.shape[1]} tokens", ours, theirs, tokens) for tokens in batches]
        print_table(["model, eager", *head], models)
        ops = []
        for batch, sequence in (batches[2].shape, batches[-1].shape):
            shape = f"{batch} x {sequence}"
            heads = torch.randn(batch, sequence, 3, MINILM.heads, MINILM.hidden // MINILM.heads).permute(2, 0, 3, 1, 4)
            mask = torch.ones(batch, 1, 1, sequence, dtype=torch.bool)
            x, wide = torch.randn(batch, sequence, MINILM.hidden), torch.randn(batch, sequence, MINILM.intermediate)
            norm = (ours.norm.weight, ours.norm.bias, MINILM.eps)
            ops += [
                row(f"attention, {shape}", KERNELPACK.attention, TORCH.attention, *heads.unbind(0), mask),
                row(f"layer norm, {shape}", KERNELPACK.layer_norm, TORCH.layer_norm, x, *norm),
                row(f"gelu, {shape}", KERNELPACK.gelu, TORCH.gelu, wide),
            ]
        print_table(["op", *head], ops)
    print(f"  {torch.get_num_threads()} threads, torch {torch.__version__}; the matrix products of both models are torch's")


if __name__ == "__main__":
    sys.exit(main())
