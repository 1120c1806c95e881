"""Imports run down: each room imports what lies below it, and the exceptions are tables that name their reason."""

from __future__ import annotations

from pathlib import Path

import kernelpack
from tests.house.layers import FLOORS, NOT_YET, UPWARD, Import, imports, is_face, may_import, modules, room_of

ROOT = Path(kernelpack.__file__).parent


def against_the_rule(*, late: bool) -> list[Import]:
    """Imports that run up or sideways: when their function is called (`late`), or when their module is imported."""
    return [found for found in imports(ROOT) if found.late is late and not may_import(found.importer, found.imported)]


def test_every_module_belongs_to_a_room() -> None:
    assert [name for name in modules(ROOT) if not is_face(name) and not room_of(name)] == []
    rooms = [room for floor in FLOORS for room in floor]
    assert len(rooms) == len(set(rooms))


def test_a_room_imports_only_what_lies_below_it() -> None:
    found = [f"{it.importer}:{it.line} imports {it.imported}" for it in against_the_rule(late=False) if not _not_yet(it)]
    assert found == []


def test_imports_that_run_up_are_listed_with_their_reason() -> None:
    found = against_the_rule(late=True)
    assert [f"{it.importer}:{it.line}" for it in found if not _rooms(it) & set(UPWARD) and not _not_yet(it)] == []
    assert set(UPWARD) - set().union(*map(_rooms, found)) == set()


def test_exceptions_that_nobody_needs_are_gone() -> None:
    used = {(room_of(it.importer), it.imported) for it in against_the_rule(late=False)}
    assert set(NOT_YET) == used


def test_only_faces_import_a_face() -> None:
    assert may_import("triton.runtime.jit", "kernel.jit")
    assert may_import("triton", "triton.runtime")
    assert may_import("", "triton.runtime")
    assert not may_import("cli.doctor", "triton.backends")
    assert not may_import("runtime.launcher", "language.hopper")


def test_an_import_that_runs_up_is_found() -> None:
    assert may_import("backends.cuda.backend", "ir.core")
    assert not may_import("ir.core", "backends.cuda.backend")
    assert not may_import("frontend.visitor", "backends.base")
    assert may_import("opgen.build", "opgen.stated.schema")
    assert not may_import("opgen.stated.schema", "opgen.build")


def _not_yet(found: Import) -> bool:
    return (room_of(found.importer), found.imported) in NOT_YET


def _rooms(found: Import) -> set[tuple[str, str]]:
    return {(room_of(found.importer), room_of(found.imported))}
