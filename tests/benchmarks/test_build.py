"""What the benchmark of builds does to op files, and which kernels it counts."""

from __future__ import annotations

from pathlib import Path

from benchmarks.build import change_one_kernel, kernels_of

OP_FILE = '''"""Two kernels."""

import kernelpack as kp


@kp.jit
def first(x):
    """Text."""
    kp.y(x)


@kp.jit(noinline=True)
def second(x):
    pass
'''


def test_one_kernel_changes_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "op.py"
    file.write_text(OP_FILE)
    assert change_one_kernel(file, ["first.any for cuda:sm_90a", "second.any for cuda:sm_90a"]) == "first"
    assert file.read_text() == OP_FILE.replace('    """Text."""\n', '    """Text."""; changed: tl.constexpr = 1\n')


def test_functions_that_kernels_call_are_no_kernels(tmp_path: Path) -> None:
    file = tmp_path / "op.py"
    file.write_text(OP_FILE.replace("    pass", "    kp.z(x)"))
    assert change_one_kernel(file, ["second.any for cuda:sm_90a"]) == "second"


def test_variants_are_counted_by_their_kernels_whole_name() -> None:
    compiled = [
        "mha-f32.any for cpu:x86-64-v3",
        "mha.any for cuda:sm_90a",
        "mha_backward.any for cuda:sm_90a",
        "softmax.any for x",
    ]
    assert kernels_of("mha", compiled) == compiled[:2]
