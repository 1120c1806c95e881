"""Every byte of a library is counted once, under what it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kernelpack.errors import BuildError
from kernelpack.opgen.build import Built
from kernelpack.opgen.size import sizes
from kernelpack.pack.elf import linked_packs


def test_the_parts_are_the_whole(sample_built: Built) -> None:
    found = sizes(sample_built.directory)
    assert found.library == sample_built.library
    assert found.total == sample_built.library.stat().st_size == sum(part.bytes for part in found.parts)
    assert all(part.bytes > 0 for part in found.parts)
    kinds = Counter[str]()
    for part in found.parts:
        kinds[part.kind] += part.bytes
        assert (part.op == "") == (part.target == "") == (part.kind not in ("linked code", "compressed code"))
    assert set(kinds) == {
        "linked code", "compressed code", "C functions", "ops", "runtime", "tables", "constants and names", "names for profilers",
        "what the linker needs", "padding and headers",
    }  # fmt: skip


def test_code_is_that_of_the_packs(sample_built: Built) -> None:
    """Code for CPUs takes what its objects have, code for GPUs a part of its images."""
    by_target = Counter[str]()
    for part in sizes(sample_built.directory).parts:
        by_target[part.target] += part.bytes
    packs = {target: [pack for pack in sample_built.packs if str(pack.target) == target] for target in by_target if target}
    assert set(packs) == {str(pack.target) for pack in sample_built.packs if pack in linked_packs(sample_built.packs)} | {
        "cuda:sm_90a"
    }
    for target, found in packs.items():
        whole = sum(len(pack.image) for pack in found)
        assert 0.02 * whole < by_target[target] < (0.3 if target.startswith("cuda") else 0.9) * whole


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match="is no folder that kernelpack build wrote\n  to fix: name the folder of a built library"
    ):
        sizes(tmp_path)
