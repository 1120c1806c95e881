"""docs/functions.md is what the language says of itself now, and has an entry for every function."""

from __future__ import annotations

import re

import pytest

from docs.functions import PAGE, SECTIONS, entry, functions_of, in_words, page
from kernelpack.ir.libdevice import FUNCTIONS


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE.read_text(), "to fix: make docs"


def test_a_sample_of_the_page_is_up_to_date() -> None:
    """Every fifth function's entry, in its section."""
    sections = {title: text for title, _, text in (part.partition("\n\n") for part in PAGE.read_text().split("\n## "))}
    for title, (module, prefix) in SECTIONS.items():
        for name, value in list(functions_of(module))[::5]:
            assert f"\n\n{entry(prefix, name, value)}\n" in f"\n\n{sections[title]}\n", "to fix: make docs"


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
