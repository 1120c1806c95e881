"""Offsets beyond 2^31 elements on a GPU: index arithmetic of the op library's kernels widens."""

from __future__ import annotations

import pytest
import torch

import kernelpack
from tests.ops.far_cases import far_calls
from tests.ops.grid import module_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.mark.parametrize("name", list(far_calls("meta")))
def test_offsets_beyond_2_to_the_31_elements(name: str) -> None:
    assert kernelpack.__version__  # what loads torch.ops.kernelpack
    op, (args, kwargs) = far_calls("cuda")[name]
    got = getattr(torch.ops.kernelpack, op)(*args, **kwargs)
    near = [x.clone(memory_format=torch.preserve_format) if isinstance(x, torch.Tensor) else x for x in args]
    torch.testing.assert_close(got, module_of(op).reference(*near, **kwargs), atol=4e-2, rtol=3e-2)
