"""The tests of this folder call the op library that kernelpack ships."""

from __future__ import annotations

import pytest
import torch

import kernelpack


@pytest.fixture(scope="session", autouse=True)
def library() -> None:
    """torch.ops.kernelpack.*; fails where the library was not built, so that nothing passes for want of it."""
    assert kernelpack.__version__
    if not any(path.endswith("libkernelpack_ops.so") for path in torch.ops.loaded_libraries):
        pytest.fail("the op library is not built; to fix: make build", pytrace=False)


@pytest.fixture(scope="session")
def library_file(library: None) -> str:
    """The shared object that holds the ops, for processes that load it without kernelpack."""
    return next(path for path in torch.ops.loaded_libraries if path.endswith("libkernelpack_ops.so"))
