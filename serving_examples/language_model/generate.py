"""Texts from a language model in Python: a paged cache, batches of prompts and new tokens, and the likeliest text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from serving_examples.language_model.gguf_file import Config
from serving_examples.language_model.model import Llama

PAGE = 64
"""Tokens of a page of the cache."""


class Cache:
    """Keys and values of all layers for so many sequences of up to `length` tokens; each sequence has pages of its own."""

    def __init__(self, config: Config, sequences: int, length: int, dtype: torch.dtype = torch.float32) -> None:
        pages = math.ceil(length / PAGE)
        shape = (sequences * pages, PAGE, config.key_heads, config.size)
        self.keys, self.values = ([torch.zeros(shape, dtype=dtype) for _ in range(config.layers)] for _ in range(2))
        self.table = torch.arange(sequences * pages, dtype=torch.int32).view(sequences, pages)
        self.lengths = torch.zeros(sequences, dtype=torch.int32)


def batch(cache: Cache, tokens: Sequence[Sequence[int]], *, every: bool = False) -> tuple[Tensor | list[Tensor], ...]:
    """Makes room for tokens[i] in sequence i. Returns what a model takes for them: logits are wanted after the last token of each
    sequence or, with `every`, after each token. Raises ValueError where a sequence is too long for its pages."""
    counts = torch.tensor([len(own) for own in tokens], dtype=torch.int32)
    starts = torch.cat((torch.zeros(1, dtype=torch.int32), counts.cumsum(0, dtype=torch.int32)))
    sequence = torch.repeat_interleave(counts)
    positions = torch.arange(int(starts[-1])) + (cache.lengths - starts[:-1])[sequence]
    cache.lengths += counts
    longest, pages = int(cache.lengths.max()), cache.table.shape[1]
    if longest > pages * PAGE:
        raise ValueError(f"a sequence has {longest} tokens, the cache has pages for {pages * PAGE}")
    slots = cache.table[sequence, positions // PAGE] * PAGE + positions % PAGE
    rows = torch.arange(len(positions)) if every else (starts[1:] - 1).long()
    return (
        torch.tensor([token for own in tokens for token in own]), positions, slots, starts, cache.lengths,
        cache.table[:, : math.ceil(longest / PAGE)].contiguous(), rows, torch.empty(int(counts.max()), dtype=torch.int8),
        cache.keys, cache.values,
    )  # fmt: skip


def read(model: Llama, cache: Cache, tokens: Sequence[Sequence[int]], *, every: bool = False) -> Tensor:
    """Appends tokens[i] to sequence i of a cache. Returns the logits after the last token of each sequence or, with `every`, after each
    token: [rows, vocabulary]."""
    logits: Tensor = model(*batch(cache, tokens, every=every))
    return logits


def continued(model: Llama, prompts: Sequence[Sequence[int]], count: int) -> Iterator[Tensor]:
    """Yields `count` times the logits after prompts, [prompts, vocabulary], to each of which the most likely token is then added; all
    prompts are one batch."""
    cache = Cache(model.config, len(prompts), max(map(len, prompts)) + count, model.words.dtype)
    tokens = prompts
    for _ in range(count):
        logits = read(model, cache, tokens)
        yield logits
        tokens = logits.argmax(-1, keepdim=True).tolist()


def generate(model: Llama, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Returns the `count` tokens that are most likely after each prompt, one after the other."""
    return torch.stack([logits.argmax(-1) for logits in continued(model, prompts, count)], 1).tolist()
