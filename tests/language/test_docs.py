"""docs/language.md names what there is: every name in it exists, and it has every name that docs/functions.md has no entry for."""

from __future__ import annotations

import re
from pathlib import Path

import kernelpack.language as tl
from kernelpack.language import hopper

DOCS = Path(__file__).parents[2] / "docs" / "language.md"
FUNCTIONS = DOCS.with_name("functions.md")
NOT_FOR_KERNELS = {
    "block_type",
    "constexpr_type",
    "dtype",
    "pointer_type",
    "tensor",
    "tensor_descriptor",
    "void",
}  # types that annotations and host code speak of


def test_the_page_and_the_language_agree() -> None:
    named = {name.partition(".")[0] for name in re.findall(r"\btl\.([A-Za-z]\w*(?:\.\w+)*)", DOCS.read_text())}
    public = {*tl.core.__all__, *tl.descriptors.__all__, *tl.math.__all__, *tl.random.__all__, *tl.standard.__all__}
    assert sorted(name for name in named if not hasattr(tl, name)) == []
    entries = set(re.findall(r"^### `tl\.(\w+)", FUNCTIONS.read_text(), re.MULTILINE))
    assert sorted(public - named - entries - NOT_FOR_KERNELS) == []


def test_the_page_names_all_of_the_hopper_dialect() -> None:
    named = set(re.findall(r"\bhopper\.([a-z]\w*)", DOCS.read_text()))
    assert named == set(hopper.__all__)
