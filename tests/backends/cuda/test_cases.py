"""Kernels computed by the emulator, for sm_80, agree with torch, in every order of threads."""

from __future__ import annotations

import pytest

from tests.backends.cuda.cases import cases
from tests.backends.cuda.launch import Case
from tests.backends.cuda.running import emulate


@pytest.mark.parametrize("case", [case for case in cases() if case.small], ids=lambda case: case.name)
def test_computes_what_torch_does(case: Case) -> None:
    emulate(case.launch())
