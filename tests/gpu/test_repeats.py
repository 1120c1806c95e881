"""No op is a matter of luck: a thousand runs agree to the bit, whatever else is in flight. No op of the library adds with atomics."""

from __future__ import annotations

import pytest
import torch

from tests.ops.functional import functional, results_of
from tests.ops.grid import OPS, Case, cases
from tests.ops.layouts import bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
REPEATS = 1000
LARGEST = 3
"""How many cases of each op and dtype run, those with the most elements."""


def _elements(case: Case) -> int:
    args, kwargs = case.arguments()
    return sum(value.numel() for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("op", OPS)
def test_a_thousand_runs_agree(op: str) -> None:
    of_op = [case for case in cases() if case.op == op]
    for dtype in dict.fromkeys(case.dtype for case in of_op):
        for case in sorted((case for case in of_op if case.dtype == dtype), key=_elements)[-LARGEST:]:
            args, kwargs = case.arguments("cuda")
            run = functional(op)
            first = results_of(run(*args, **kwargs))
            differs = torch.zeros((), dtype=torch.bool, device="cuda")
            for _ in range(REPEATS):
                for one, again in zip(first, results_of(run(*args, **kwargs)), strict=True):
                    differs |= (bits(again) != bits(one)).any()
            assert not differs, case
