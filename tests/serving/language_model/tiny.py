"""A Llama of two layers with random weights, in SmolLM2's formats: what tests build that need no right text."""

from __future__ import annotations

from pathlib import Path

import numpy
from gguf import GGMLQuantizationType, GGUFWriter, quants

LAYERS, HIDDEN, HEADS, KEY_HEADS, FEED, WORDS = 2, 128, 4, 2, 256, 96


def write_tiny(path: Path) -> None:
    """Writes the model's GGUF file, without a tokenizer."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_feed_forward_length(FEED)
    writer.add_context_length(256)
    writer.add_rope_freq_base(1e4)
    writer.add_layer_norm_rms_eps(1e-5)
    generator = numpy.random.default_rng(0)

    def add(name: str, *shape: int, format: GGMLQuantizationType = GGMLQuantizationType.Q4_1) -> None:
        values = generator.normal(size=shape).astype(numpy.float32)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", values + 1)
        else:
            writer.add_tensor(f"{name}.weight", quants.quantize(values * shape[1] ** -0.5, format), raw_dtype=format)

    add("token_embd", WORDS, HIDDEN, format=GGMLQuantizationType.Q8_0)
    add("output_norm", HIDDEN)
    size = HIDDEN // HEADS
    for i in range(LAYERS):
        for name, *shape in (
            ("attn_norm", HIDDEN), ("attn_q", HIDDEN, HIDDEN), ("attn_k", KEY_HEADS * size, HIDDEN), ("attn_v", KEY_HEADS * size, HIDDEN),
            ("attn_output", HIDDEN, HIDDEN), ("ffn_norm", HIDDEN), ("ffn_gate", FEED, HIDDEN), ("ffn_up", FEED, HIDDEN),
            ("ffn_down", HIDDEN, FEED),
        ):  # fmt: skip
            add(f"blk.{i}.{name}", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
