"""docs/functions.md is what the language says of itself now, and has an entry for every function."""

from __future__ import annotations

import re

from docs.functions import PAGE, SECTIONS, functions_of, in_words, page
from kernelpack.ir.libdevice import FUNCTIONS


def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE.read_text(), "to fix: make docs"


def test_every_function_has_an_entry_that_says_something() -> None:
    entries = dict(re.findall(r"^### `([\w.]+)\(.*\n\n(.*)", PAGE.read_text(), re.MULTILINE))
    names = {f"{prefix}.{name}" for module, prefix in SECTIONS.values() for name, _ in functions_of(module)}
    assert set(entries) == names
    assert [name for name, text in entries.items() if len(text.split()) < 3] == []
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)) == set(FUNCTIONS)


def test_types_in_words() -> None:
    every = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp16", "bf16", "fp32", "fp64"]
    assert in_words(every) == "all integers, floats of 16 bits and more"
    assert in_words(["int32", "fp32"]) == "int32, fp32"
