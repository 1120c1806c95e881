"""The language-model server's tokenizer, on texts, and its streamed text, on stop strings and bytes."""

from tests.fuzz.subjects.language_model import TEXTS as SUBJECT

__all__ = ["SUBJECT"]
