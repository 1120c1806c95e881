"""Every elementwise operation in every type, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelpack.ir.types import Type
from tests.backends.cuda.elementwise import KINDS, Elementwise
from tests.gpu.launcher import LoadedCubin
from tests.gpu.packs import kernel_of


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_computes_what_the_interpreter_defines(kind: Type, packs: Path | None) -> None:
    table = Elementwise(kind)
    memory = table.memory()
    tensors = [torch.from_numpy(array).cuda() for array in memory]
    LoadedCubin(kernel_of(f"elementwise-{kind}", packs)).launch((1, 1, 1), tensors)
    assert not table.problems([tensor.cpu().numpy() for tensor in tensors])
