"""A Llama of two layers with random weights, in SmolLM2's formats: what tests build that need no right text."""

from __future__ import annotations

from pathlib import Path

import numpy
from gguf import GGMLQuantizationType, GGUFWriter, quants

from serving_examples.language_model.gguf_file import Config, shapes

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

    config = Config(LAYERS, HIDDEN, HEADS, KEY_HEADS, FEED, 256, 1e4, 1e-5)
    for name, shape in shapes(config, WORDS):
        add(name, *shape, format=GGMLQuantizationType.Q8_0 if name == "token_embd" else GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
