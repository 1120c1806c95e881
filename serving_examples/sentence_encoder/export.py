"""Saves an encoder for the C++ programs: as TorchScript, as an AOTInductor package, and batches with what they must give."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from serving_examples.sentence_encoder.model import SentenceEncoder


def save_torchscript(model: SentenceEncoder, path: Path) -> None:
    """Scripts a model and writes it; batch and sequence stay free."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch prefers torch.export; servers with TorchScript exist
        torch.jit.script(model).save(str(path))


def export(model: SentenceEncoder, positions: int) -> torch.export.ExportedProgram:
    """Exports a model once for every batch and for sequences of 1 to `positions` tokens."""
    free = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("sequence", min=1, max=positions)}
    return torch.export.export(model, (torch.ones(3, 5, dtype=torch.int64),), dynamic_shapes={"tokens": free})


def save_aoti(program: torch.export.ExportedProgram, path: Path) -> None:
    """Compiles an exported program ahead of time and writes the .pt2 package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's, of its own code
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))


def save_batches(batches: Iterable[tuple[Tensor, Tensor]], path: Path) -> None:
    """Writes token ids and their embeddings as text: for each batch a line of sizes, then the ids, then the embeddings."""
    with path.open("w") as file:
        for tokens, embeddings in batches:
            print(*tokens.shape, embeddings.shape[1], file=file)
            for row in tokens.tolist():
                print(*row, file=file)
            for row in embeddings.tolist():
                print(*(f"{value:.9g}" for value in row), file=file)  # nine digits: a float32 comes back as it was
