"""SmolLM2, a Llama, served from its GGUF file by kernelpack's ops: quantised products, a paged cache, prompts and new tokens in one call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy
import torch
from gguf import GGUFReader, quants
from torch import Tensor

ops = torch.ops.kernelpack

PAGE = 64
"""Tokens of a page of the cache."""


class File:
    """A GGUF file. Raises KeyError for a field or a tensor that it has not."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.fields = {
            name: field.contents() for name, field in reader.fields.items() if name.startswith(("llama.", "tokenizer."))
        }
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def floats(self, name: str) -> Tensor:
        """Returns a tensor in float32, dequantised if need be."""
        tensor = self.tensors[name]
        return torch.from_numpy(numpy.array(quants.dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32))

    def weight(self, *names: str) -> Weight:
        """Returns quantised weights of one format, one below the other, in the layout of quantized_matmul."""
        tensors = [self.tensors[name] for name in names]
        (format,) = {tensor.tensor_type for tensor in tensors}
        data = torch.from_numpy(numpy.concatenate([tensor.data for tensor in tensors]))
        return Weight(*ops.repack(data, int(format)), len(data))


class Weight(NamedTuple):
    """A weight [N, K] as repack gives it, and N: an element is scale * code + min."""

    codes: Tensor
    scales: Tensor
    mins: Tensor
    columns: int


@dataclass(frozen=True)
class Config:
    """The sizes of a Llama, as its file states them."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    positions: int
    base: float
    eps: float

    @classmethod
    def of(cls, file: File) -> Config:
        names = (
            "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "context_length", "rope.freq_base",
            "attention.layer_norm_rms_epsilon",
        )  # fmt: skip
        return cls(*(file.fields[f"llama.{name}"] for name in names))

    @property
    def size(self) -> int:
        """The elements of a head."""
        return self.hidden // self.heads


def angles(config: Config) -> Tensor:
    """Returns the cosines of each position's pairs, then their sines: [positions, head size]."""
    pairs = torch.arange(0, config.size, 2, dtype=torch.float64) / config.size
    turns = torch.arange(config.positions)[:, None] * config.base**-pairs
    return torch.cat((turns.cos(), turns.sin()), -1).float()


class Cache:
    """Keys and values of all layers for so many sequences of up to `length` tokens; each sequence has pages of its own."""

    def __init__(self, config: Config, sequences: int, length: int) -> None:
        pages = math.ceil(length / PAGE)
        self.keys, self.values = torch.zeros(2, config.layers, sequences * pages, PAGE, config.key_heads, config.size)
        self.table = torch.arange(sequences * pages, dtype=torch.int32).view(sequences, pages)
        self.lengths = torch.zeros(sequences, dtype=torch.int32)


class Batch(NamedTuple):
    """Which tokens of a call belong to which sequence, and where their keys and values go."""

    positions: Tensor
    slots: Tensor
    starts: Tensor
    longest: int
    keys: int


def append(cache: Cache, counts: Sequence[int]) -> Batch:
    """Makes room for counts[i] more tokens of sequence i. Raises ValueError where a sequence is too long for its pages."""
    more = torch.tensor(counts, dtype=torch.int32)
    starts = torch.cat((torch.zeros(1, dtype=torch.int32), more.cumsum(0, dtype=torch.int32)))
    sequence = torch.repeat_interleave(more)
    positions = torch.arange(int(starts[-1])) + (cache.lengths - starts[:-1])[sequence]
    cache.lengths += more
    keys = int(cache.lengths.max())
    if keys > cache.table.shape[1] * PAGE:
        raise ValueError(f"a sequence has {keys} tokens, the cache has pages for {cache.table.shape[1] * PAGE}")
    slots = cache.table[sequence, positions // PAGE] * PAGE + positions % PAGE
    return Batch(positions, slots, starts, max(counts), keys)


class Layer(NamedTuple):
    """The weights of a layer; products that have the same input are one."""

    attention_norm: Tensor
    query_key_value: Weight
    output: Weight
    feed_norm: Tensor
    gate_up: Weight
    down: Weight


class LanguageModel:
    """Maps tokens to the logits of the next one. `int8`: products whose left side is quantised too."""

    def __init__(self, file: File, *, int8: bool = False) -> None:
        self.config, self.int8 = Config.of(file), int8
        self.words, self.head = file.floats("token_embd.weight"), file.weight("token_embd.weight")
        self.norm, self.angles = file.floats("output_norm.weight"), angles(self.config)
        self.layers = []
        for i in range(self.config.layers):
            names = {name: f"blk.{i}.{name}.weight" for name in (
                "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
            )}  # fmt: skip
            self.layers.append(Layer(
                file.floats(names["attn_norm"]), file.weight(names["attn_q"], names["attn_k"], names["attn_v"]),
                file.weight(names["attn_output"]), file.floats(names["ffn_norm"]), file.weight(names["ffn_gate"], names["ffn_up"]),
                file.weight(names["ffn_down"]),
            ))  # fmt: skip

    def __call__(self, tokens: Sequence[Sequence[int]], cache: Cache, *, every: bool = False) -> Tensor:
        """Appends tokens[i] to sequence i of a cache. Returns the logits after the last token of each sequence or, with `every`, after
        each token: float32 [rows, vocabulary]."""
        batch = append(cache, [len(own) for own in tokens])
        x = ops.embedding(torch.tensor([token for own in tokens for token in own]), self.words)
        residual = torch.zeros_like(x)
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            x = ops.add_rms_norm(x, residual, layer.attention_norm, self.config.eps)
            x = self.product(self.attend(self.product(x, layer.query_key_value), keys, values, cache, batch), layer.output)
            x = ops.add_rms_norm(x, residual, layer.feed_norm, self.config.eps)
            x = self.product(ops.silu_and_mul(self.product(x, layer.gate_up)), layer.down)
        x = ops.add_rms_norm(x, residual, self.norm, self.config.eps)
        return self.product(x if every else x[batch.starts[1:] - 1], self.head)

    def product(self, x: Tensor, weight: Weight) -> Tensor:
        *parts, columns = weight
        return ops.quantized_matmul(x, *parts, columns=columns, int8=self.int8)

    def attend(self, packed: Tensor, keys: Tensor, values: Tensor, cache: Cache, batch: Batch) -> Tensor:
        """Attention of new tokens' queries, which lie beside their keys and values, to all keys of their sequences."""
        config = self.config
        heads = packed.view(len(packed), -1, config.size)
        query, key, value = heads.split((config.heads, config.key_heads, config.key_heads), 1)
        ops.rope_and_cache(query, key, value, keys, values, batch.positions, self.angles, batch.slots, interleaved=True)
        out, _ = ops.paged_attention(
            query, keys, values, cache.table, batch.starts, cache.lengths,
            max_query_length=batch.longest, max_key_length=batch.keys,
        )  # fmt: skip
        return out.flatten(1)


def continued(model: LanguageModel, prompts: Sequence[Sequence[int]], count: int) -> Iterator[Tensor]:
    """Yields `count` times the logits after prompts, [prompts, vocabulary], to each of which the most likely token is then added; all
    prompts are one batch."""
    cache = Cache(model.config, len(prompts), max(map(len, prompts)) + count)
    tokens = prompts
    for _ in range(count):
        logits = model(tokens, cache)
        yield logits
        tokens = logits.argmax(-1, keepdim=True).tolist()


def generate(model: LanguageModel, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Returns the `count` tokens that are most likely after each prompt, one after the other."""
    return torch.stack([logits.argmax(-1) for logits in continued(model, prompts, count)], 1).tolist()
