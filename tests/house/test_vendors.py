"""What GPUs share names no vendor: a backend for another GPU starts from backends/gpu as it is."""

from __future__ import annotations

import re
from pathlib import Path

import kernelpack

SHARED = Path(kernelpack.__file__).parent / "backends" / "gpu"
NAMES = re.compile(
    r"(?<![a-z])(nvidia|nvptx|nvvm|cuda|ptx\w*|cubin|hopper|blackwell|ttng|w?gmma|mma|tma|mbarrier\w*|ldmatrix|stmatrix|setmaxnreg"
    r"|cp\.async|warp_?groups?|tensor_?map\w*|sm_\d+\w*|amd(gpu|gcn)?|hip|rocm|gfx\w*|mfma|ds_\w+|cdna\d?|intel|xpu)(?![a-z])"
)
"""Vendors, their instructions and their architectures."""


def test_no_name_of_a_vendor_stands_in_what_gpus_share() -> None:
    files = sorted(SHARED.rglob("*.py"))
    assert len(files) > 15
    found = [
        f"{path.relative_to(SHARED)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NAMES.search(line.lower())
    ]
    assert found == []


def test_the_names_are_found_where_they_stand() -> None:
    for line in (
        'if op.name == "ttng.wait_turn":',
        "from kernelpack.backends.cuda import x",
        "WARPGROUP = 4",
        "LIMIT = sm_90a",
    ):
        assert NAMES.search(line.lower()) is not None
