"""Which LLVM makes code."""

from __future__ import annotations

import pytest

from kernelpack.errors import BuildError
from kernelpack.llvm import codegen


def test_an_llvm_that_is_too_old_is_named_with_the_one_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    codegen.check_version(20, "0.45", "code for CPUs")
    monkeypatch.setattr(codegen.llvm, "llvm_version_info", (15, 0, 7))
    with pytest.raises(BuildError) as raised:
        codegen.check_version(20, "0.45", "code for CPUs")
    assert raised.value.message.startswith("code for CPUs needs LLVM 20 or later, and here is llvmlite ")
    assert raised.value.message.endswith("LLVM 15.0.7")
    assert raised.value.cure == "pip install 'llvmlite>=0.45'"
