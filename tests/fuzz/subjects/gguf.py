"""The language-model server's reader of GGUF files, and its tokenizer of what it reads."""

from tests.fuzz.subjects.language_model import FILES as SUBJECT

__all__ = ["SUBJECT"]
