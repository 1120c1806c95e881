"""Ops are as accurate as torch's own, at every CPU level that the library holds and this CPU has, in every dtype."""

from __future__ import annotations

import pytest

from tests.ops.grid import OPS, cases
from tests.ops.levels import EACH_LEVEL, run_at

DTYPES = {
    "copy_blocks": {"float32", "float16", "bfloat16", "float8_e4m3fn"},
    "quantized_matmul": {"float32", "bfloat16"},
    "scaled_matmul": {"float8_e4m3fn", "float8_e5m2"},
}
"""Of ops that have others than most."""


def test_the_grid_is_large_and_covers_every_op_and_dtype() -> None:
    grid = cases()
    assert len(grid) >= 500
    assert len({str(case) for case in grid}) == len(grid)
    for op in OPS:
        dtypes = DTYPES.get(op, {"float32", "float16", "bfloat16"})
        assert {str(case.dtype) for case in grid if case.op == op} == {f"torch.{dtype}" for dtype in dtypes}


def test_every_op_and_dtype_has_cases_at_the_edge() -> None:
    edges = [case for case in cases() if case.edge]
    assert len(edges) >= 1000
    assert {(case.op, case.dtype) for case in edges} == {(case.op, case.dtype) for case in cases()}
    assert sum(case.overflows for case in edges) < len(edges) / 5


@pytest.mark.parametrize("level", EACH_LEVEL)
def test_errors_are_at_most_twice_those_of_torch(level: str) -> None:
    done = run_at(level, "-m", "tests.ops.grid")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{len(cases())} cases, 0 inaccurate" in done.stdout
