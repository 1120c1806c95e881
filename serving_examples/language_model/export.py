"""Saves a language model for the C++ server, without weights: `python -m serving_examples.language_model.export FILE.gguf --form int8 --out F`.

A name that ends with .pt2 is an AOTInductor package, one that ends with .pt is TorchScript. Both take new tokens, sequences and pages of
any number, and say of which model they are: the server compares that with its GGUF file.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch
from torch.export import Dim

import kernelpack
from serving_examples.language_model.generate import PAGE, Cache, batch
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.model import Form, Llama

LARGEST = 2**20
"""Tokens and pages of a call, at most."""


def metadata(model: Llama, device: str) -> dict[str, str]:
    """Returns what the server must know of a package: its model, by what the compiled code has of it, and how it computes."""
    config = model.config
    sizes = (config.layers, config.hidden, config.heads, config.key_heads, config.feed, config.positions)
    name = f"llama {' '.join(map(str, sizes))} {config.eps:.6g}"
    piece = str(least_piece(model, device))
    return {"model": name, "form": model.form, "page": str(PAGE), "piece": piece, "device": device}


def least_piece(model: Llama, device: str) -> int:
    """Returns from how many new tokens of a sequence on a call gives them the same bits, 1 where a model promises none: few rows of a key head
    have kernels of their own in paged_attention, those of up to 4 heads on CPUs for up to 4 rows, others for up to 16."""
    group = model.heads // model.key_heads
    few = 4 if device == "cpu" and group <= 4 else 16
    return few // group + 1 if model.invariant else 1


def save_torchscript(model: Llama, path: Path, facts: dict[str, str]) -> None:
    """Scripts a model and writes it; its weights are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch prefers torch.export; servers with TorchScript exist
        script = torch.jit.script(model)
        for module in script.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, torch.empty(0, dtype=buffer.dtype))
        torch.jit.save(script, str(path), _extra_files={name: fact.encode() for name, fact in facts.items()})


def export(model: Llama) -> torch.export.ExportedProgram:
    """Exports a model once for every number of new tokens, sequences, pages and rows."""
    with torch.device(model.words.device):
        example = batch(Cache(model.config, 3, 3 * PAGE, model.words.dtype), [[1] * (PAGE + 1), [2] * 2, [3] * 3])
    tokens, sequences, width, rows, longest, pages = (
        Dim(name, min=1, max=LARGEST) for name in ("tokens_", "sequences", "width", "rows_", "longest_", "pages")
    )
    layers = model.config.layers
    free = (
        {0: tokens}, {0: tokens}, {0: tokens}, {0: sequences + 1}, {0: sequences}, {0: sequences, 1: width}, {0: rows}, {0: longest},
        [{0: pages}] * layers, [{0: pages}] * layers,
    )  # fmt: skip
    return torch.export.export(model, example, dynamic_shapes=free)


def save_aoti(program: torch.export.ExportedProgram, path: Path, facts: dict[str, str]) -> None:
    """Compiles an exported program ahead of time and writes the .pt2 package; its weights are left out."""
    settings = {"aot_inductor.package_constants_in_so": False, "aot_inductor.metadata": facts}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's, of its own code
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="the GGUF file")
    parser.add_argument("--form", choices=get_args(Form), default="float32")
    parser.add_argument("--invariant", action="store_true", help="a sequence has the same bits whatever is in its call")
    parser.add_argument("--out", type=Path, required=True, help="what is written: .pt2 or .pt")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--library", metavar="FOLDER", help="the folder of a library that holds the ops")
    given = parser.parse_args(arguments)
    if given.out.suffix not in (".pt2", ".pt"):
        parser.error(f"--out is {given.out}, expected a name that ends with .pt2 or .pt")
    if given.library:
        kernelpack.load(given.library)
    model = Llama(File(given.file), given.form, invariant=given.invariant).to(given.device)
    facts = metadata(model, given.device)
    if given.out.suffix == ".pt":
        save_torchscript(model, given.out, facts)
    else:
        save_aoti(export(model), given.out, facts)


if __name__ == "__main__":
    with torch.no_grad():
        main(sys.argv[1:])
