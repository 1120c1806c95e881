"""The names that kernels find, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.kernel.builtin import METHODS
from kernelpack.language.unsupported import UNSUPPORTED


def test_writing_kernels_needs_neither_torch_nor_a_compiler() -> None:
    code = (
        "import sys, kernelpack.language as tl\n"
        "from kernelpack import jit\n"
        "print(sorted({'torch', 'llvmlite', 'cuda'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "KERNELPACK_LOAD_LIBRARY": "0"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "first",
    ["kernelpack.kernel.jit", "kernelpack.language", "kernelpack.semantics.operators", "kernelpack.frontend.ast_to_ttir"],
)
def test_modules_can_be_imported_in_any_order(first: str) -> None:
    code = f"import {first}\nimport kernelpack as kp\nkp.jit, kp.language.sum.cache_key"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("module", [tl, tl.math])
def test_public_names_are_documented_functions_or_types(module: object) -> None:
    for name in (
        [*tl.core.__all__, *tl.descriptors.__all__, *tl.math.__all__, *tl.standard.__all__] if module is tl else tl.math.__all__
    ):
        value = getattr(module, name)
        assert value.__doc__ if callable(value) else isinstance(value, tl.dtype), name


def test_methods_are_functions_of_the_language() -> None:
    assert METHODS["to"] is tl.cast
    for name, function in METHODS.items():
        assert getattr(tl, "cast" if name == "to" else name) is function


def test_names_are_where_kernels_import_them_from() -> None:
    for name in ("zeros", "zeros_like", "sort", "topk", "flip", "bitonic_merge", "cdiv", "sum", "_log2"):
        assert getattr(tl.standard, name) is getattr(tl, name, tl.standard._log2)
    assert tl.TRITON_MAX_TENSOR_NUMEL == 1048576


def test_no_supported_name_is_listed_as_unsupported() -> None:
    assert [name for name in UNSUPPORTED if hasattr(tl, name) or hasattr(tl.math, name)] == []


def test_top_level() -> None:
    assert kp.language is tl
    assert kp.constexpr is tl.constexpr
    assert kp.__version__
