"""Each module of a backend has a test of its own, or is imported by one: nothing is reached through whole kernels alone."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import kernelpack

ROOT = Path(kernelpack.__file__).parent
TESTS = Path(__file__).parents[1] / "backends"

EXCEPTIONS: dict[str, str] = {}
"""Modules without a test, and why. This table only shrinks."""


def modules(backend: str) -> dict[str, Path]:
    """Returns the modules of a backend that hold code."""
    paths = sorted((ROOT / "backends" / backend).rglob("*.py"))
    return {_name(path): path for path in paths if _has_code(path)}


def _has_code(path: Path) -> bool:
    return any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in ast.parse(path.read_text()).body)


def _name(path: Path) -> str:
    return ".".join(("kernelpack", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def _own_test(path: Path) -> Path:
    """Returns where the tests of a module are: in the folder of its name, `test_` before its own."""
    within = path.relative_to(ROOT / "backends")
    return TESTS / within.parent / f"test_{within.name}"


@functools.cache
def imported() -> frozenset[str]:
    """Returns what tests of backends import: modules, and what is imported from them."""
    found: set[str] = set()
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
    return frozenset(found)


def untested(backend: str) -> list[str]:
    known = imported()
    return [name for name, path in modules(backend).items() if name not in known and not _own_test(path).is_file()]


@pytest.mark.parametrize("backend", ["amd", "cpu", "cuda", "gpu"])
def test_each_module_is_tested(backend: str) -> None:
    assert len(modules(backend)) > (5 if backend == "amd" else 10)
    assert [name for name in untested(backend) if name not in EXCEPTIONS] == []


def test_exceptions_that_nobody_needs_are_gone() -> None:
    assert set(EXCEPTIONS) <= {name for backend in ("amd", "cpu", "cuda", "gpu") for name in untested(backend)}
