"""The demo: a sentence encoder and a language model, served with kernelpack's ops in Python and in C++.

Run by `make demo`, which builds an op library for this machine's CPU and names its folder; without an argument it is the one
that `make build` made. Exits with 1 if anything disagrees with the same model on plain torch ops.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import torch

import kernelpack
from kernelpack.cli.terminal import size
from kernelpack.errors import BuildError
from kernelpack.opgen.load import own_library
from kernelpack.pack.lock import read_lock
from serving_examples.language_model import demo as language_model
from serving_examples.sentence_encoder.export import export, save_aoti, save_batches
from serving_examples.sentence_encoder.model import KERNELPACK, MINILM, TORCH, SentenceEncoder, load_encoder
from serving_examples.sentence_encoder.programs import build_program, run_program
from serving_examples.sentence_encoder.tokens import model_folder, tokenize
from serving_examples.steps import STYLE, alternate, heading, print_table, timed, verdict

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "demo"
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

    heading("3  Serve it from C++, with no Python in the process")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with timed("AOTInductor: encoder.pt2, for every batch and 1 to 512 tokens"):
        save_aoti(export(ours, MINILM.positions), FOLDER / "encoder.pt2")
    batches = [running_text(page, 1, 8), page, running_text(page, 2, 512)]
    save_batches([(tokens, ours(tokens)) for tokens in batches], FOLDER / "batches.txt")
    with timed("g++ serving_examples/aoti_cpp/serve.cpp"):
        program = build_program("aoti_cpp", FOLDER)
    print(f"  build/demo/aoti_cpp {library.name} encoder.pt2 batches.txt")
    done = run_program(program, library, FOLDER / "encoder.pt2", FOLDER / "batches.txt", seconds=0.2)
    print(done.stdout + done.stderr, end="")
    agree = verdict(done.returncode == 0, "the embeddings are Python's", "the program failed") and agree
    show_speed(ours, theirs, batches)

    heading("4  A language model in C++: SmolLM2, from its GGUF file")
    agree = language_model.show(library, FOLDER) and agree

    minutes, seconds = divmod(round(time.perf_counter() - started), 60)
    heading(f"{'Done' if agree else 'FAILED'} after {minutes} min {seconds} s")
    return 0 if agree else 1


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


def show_speed(ours: SentenceEncoder, theirs: SentenceEncoder, batches: list[torch.Tensor]) -> None:
    """Prints the times of both models, whose calls take turns."""
    rows = []
    with torch.inference_mode():
        for tokens in batches:
            mine, other = alternate(partial(ours, tokens), partial(theirs, tokens))
            rows.append(
                [f"{tokens.shape[0]} x {tokens.shape[1]} tokens", f"{mine:.3f}", f"{other:.3f}", f"{other / mine:.2f}x"]
            )
    print_table(["encoder, eager", "kernelpack ms", "torch ms", "ratio"], rows)
    print(f"  {torch.get_num_threads()} threads, torch {torch.__version__}; the matrix products of both encoders are torch's")


if __name__ == "__main__":
    sys.exit(main())
