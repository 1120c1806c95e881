"""The op library on a GPU: the accuracy grid of tests/ops."""

from __future__ import annotations

import pytest
import torch

from tests.ops.grid import OPS, failures

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.parametrize("op", OPS)
def test_errors_are_at_most_twice_those_of_torch(op: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    count, problems = failures("cuda", op)
    assert count > 90
    assert not problems, "\n".join(problems)
