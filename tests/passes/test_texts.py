"""Passes turn the modules of tests/passes/data into what stands there, by the command that anybody can run: `kernelpack opt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.texts import PassText, read, rewrite, texts


@pytest.mark.parametrize("text", texts(), ids=lambda text: text.path.stem)
def test_passes_make_of_a_module_what_the_file_says(text: PassText) -> None:
    assert text.run() == text.after, f"to look at the change: python -m tests.passes.texts {text.path}, then git diff"


@pytest.mark.parametrize("text", texts(), ids=lambda text: text.path.stem)
def test_a_file_is_named_after_the_pass_that_it_tests(text: PassText) -> None:
    assert text.path.stem.partition("-")[0] == text.tested


ADDS = """// RUN: --target cpu:x86-64-v3 --passes cse
tt.func public @f(%x: i32) -> (i32, i32) {
  %a = arith.addi %x, %x : i32
  %b = arith.addi %x, %x : i32
  tt.return %a, %b : i32, i32
}
// ----
"""


def test_what_comes_after_the_dashes_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "cse.ttir"
    path.write_text(ADDS)
    assert read(path).run() != read(path).after
    rewrite(path)
    assert path.read_text().startswith(ADDS)
    assert "tt.return %a, %a : i32, i32" in read(path).after
    assert read(path).run() == read(path).after


def test_a_file_without_its_parts_is_refused_by_name(tmp_path: Path) -> None:
    for text in ("tt.func public @f() { tt.return }\n", "// RUN: --target cpu:native --passes cse\nmodule {}\n"):
        path = tmp_path / "x.ttir"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"x.ttir: expected `// RUN"):
            read(path)
