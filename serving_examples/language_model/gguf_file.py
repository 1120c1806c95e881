"""What a language model takes of a GGUF file: its sizes, and its weights as ops read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from gguf import GGMLQuantizationType, GGUFReader, quants
from torch import Tensor


class File:
    """A GGUF file. Raises KeyError for a field or a tensor that it has not."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.fields = {
            name: field.contents() for name, field in reader.fields.items() if name.startswith(("llama.", "tokenizer."))
        }
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def floats(self, *names: str) -> Tensor:
        """Returns tensors, one below the other: in bfloat16 if they are that, else in float32, dequantised if need be."""
        tensors = [self.tensors[name] for name in names]
        if all(tensor.tensor_type == GGMLQuantizationType.BF16 for tensor in tensors):
            return torch.cat([torch.from_numpy(numpy.array(tensor.data)).view(torch.bfloat16) for tensor in tensors])
        parts = [quants.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors]
        return torch.from_numpy(numpy.concatenate(parts).astype(numpy.float32))

    def rows(self, *names: str) -> int:
        """Returns how many rows tensors have together."""
        return sum(len(self.tensors[name].data) for name in names)

    def packed(self, *names: str) -> tuple[Tensor, Tensor, Tensor]:
        """Returns quantised weights of one format, one below the other, in the layout of quantized_matmul: codes, scales, mins."""
        tensors = [self.tensors[name] for name in names]
        (format,) = {tensor.tensor_type for tensor in tensors}
        return torch.ops.kernelpack.repack(
            torch.from_numpy(numpy.concatenate([tensor.data for tensor in tensors])), int(format)
        )


@dataclass(frozen=True)
class Config:
    """The sizes of a Llama, as its file states them."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    feed: int
    positions: int
    base: float
    eps: float

    @classmethod
    def of(cls, file: File) -> Config:
        names = (
            "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "feed_forward_length", "context_length",
            "rope.freq_base", "attention.layer_norm_rms_epsilon",
        )  # fmt: skip
        if "llama.rope.scaling.type" in file.fields or "rope_freqs.weight" in file.tensors:
            raise ValueError("the GGUF file scales its rope, which is not served")
        return cls(*(file.fields[f"llama.{name}"] for name in names))

    @property
    def size(self) -> int:
        """The elements of a head."""
        return self.hidden // self.heads


def shapes(config: Config, words: int) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the names of a Llama's tensors, without ".weight", and their shapes. Its head is its embedding."""
    hidden, feed, pairs = config.hidden, config.feed, config.key_heads * config.size
    layer = (
        ("attn_norm", (hidden,)), ("attn_q", (hidden, hidden)), ("attn_k", (pairs, hidden)), ("attn_v", (pairs, hidden)),
        ("attn_output", (hidden, hidden)), ("ffn_norm", (hidden,)), ("ffn_gate", (feed, hidden)), ("ffn_up", (feed, hidden)),
        ("ffn_down", (hidden, feed)),
    )  # fmt: skip
    layers = [(f"blk.{i}.{name}", shape) for i in range(config.layers) for name, shape in layer]
    return [("token_embd", (words, hidden)), ("output_norm", (hidden,)), *layers]
