"""Answers a question: `python -m serving_examples.language_model "What is the capital of France?" [--int8] [--library FOLDER]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import takewhile

import torch

import kernelpack
from serving_examples.language_model.generate import continued
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.model import Llama
from serving_examples.language_model.tokens import chat, model_file, tokenizer_of

END = "<|im_end|>"


def main(arguments: Sequence[str]) -> int:
    """Prints the answer, word by word. Returns 1 where the model is not installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question")
    parser.add_argument("--int8", action="store_true", help="round activations to 8 bits, too")
    parser.add_argument("--library", metavar="FOLDER", help="the folder of a library that holds the ops")
    parser.add_argument("--tokens", type=int, default=256, help="at most so many (default: 256)")
    given = parser.parse_args(arguments)
    if given.library:
        kernelpack.load(given.library)
    try:
        file = File(model_file())
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    tokenizer, model = tokenizer_of(file), Llama(file, "int8" if given.int8 else "float32")
    end = tokenizer.token_to_id(END)
    chosen = (int(logits.argmax()) for logits in continued(model, [chat(tokenizer, given.question)], given.tokens))
    tokens: list[int] = []
    for token in takewhile(lambda token: token != end, chosen):
        said = tokenizer.decode(tokens)
        tokens.append(token)
        print(tokenizer.decode(tokens).removeprefix(said), end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main(sys.argv[1:]))
