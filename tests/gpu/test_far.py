"""Offsets beyond 2^31 elements on a GPU: index arithmetic of the op library's kernels widens."""

from __future__ import annotations

import pytest
import torch

import kernelpack
from tests.ops.far_cases import FAR_CALLS, check_far_call

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.parametrize("name", FAR_CALLS)
def test_offsets_beyond_2_to_the_31_elements(name: str) -> None:
    assert kernelpack.__version__  # what loads torch.ops.kernelpack
    check_far_call(name, "cuda")
