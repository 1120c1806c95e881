"""What a call is compiled for is written as JSON, which names functions and classes of the process that reads it, and runs nothing."""

from __future__ import annotations

import enum
import json
import os
from typing import Any, NamedTuple

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.kernel.types import block_type
from kernelpack.runtime.key_text import as_json, from_json
from kernelpack.runtime.specialization import Constant


@kp.jit
def three(out):
    tl.store(out, 3.0)


class Pair(NamedTuple):
    left: int
    right: float


@kp.aggregate
class Box:
    size: tl.constexpr
    kind: tl.constexpr


class Mode(enum.Enum):
    FAST = 1


VALUES = [
    None, True, 1, "text", 0.5, float("inf"), -0.0, (), (1, (2.0, "x")), [1, 2], tl.float32, tl.pointer_type(tl.float16), Pair(1, 2.0),
    Pair, Box, Mode.FAST, three, tuple, block_type(tl.int8, [2, 4]), (("i32", True), (None, Constant(1.0)), (tuple, Pair, ("i32",))),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=[type(value).__name__ for value in VALUES])
def test_a_part_of_a_key_is_read_as_it_was_written(value: Any) -> None:
    again = from_json(json.loads(json.dumps(as_json(value))))
    assert (again, type(again), repr(again)) == (value, type(value), repr(value)) or isinstance(value, tuple)
    assert again == value


def test_a_class_that_cannot_be_named_is_not_written() -> None:
    class Inside(NamedTuple):
        one: int

    for value in (Inside, Inside(1), object(), os, os.system, {"a": 1}):
        with pytest.raises(TypeError, match="cannot be written down"):
            as_json(value)


@pytest.mark.parametrize(
    "written",
    [
        {"class": "os:system"},
        {"class": "subprocess:Popen"},
        {"parts": ["true"], "class": "os:system"},
        {"parts": [["true"]], "class": "subprocess:Popen"},
        {"parts": ["x"], "class": "pathlib:Path"},
        {"class": "not_imported_yet:thing"},
        {"member": "x", "class": "os:environ"},
        {"member": "SLOW", "class": f"{__name__}:Mode"},
        {"function": "os:system"},
        {"float": "os"},
        {"tuple": 3},
        {"unknown": 3},
    ],
)
def test_what_another_process_says_names_no_other_code(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "system", lambda *_: pytest.fail("it runs"))
    with pytest.raises((LookupError, TypeError, ValueError)):
        from_json(written)
    text = {
        "name": "three",
        "target": {"backend": "cpu", "arch": "x86-64-v3"},
        "for": "cpu:x86-64-v3",
        "traits": written,
        "options": {"tuple": []},
    }
    with pytest.raises(RuntimeError, match="Specialization data cannot be read: "):
        three.preload(json.dumps(text))


@pytest.mark.parametrize(
    "text", ["", "3", "[]", "{}", '{"name": "three"}', '{"name": "three", "target": {"backend": "cpu"}}', "[" * 100_000]
)
def test_text_that_is_no_specialization_is_refused(text: str) -> None:
    with pytest.raises(RuntimeError, match="Specialization data "):
        three.preload(text)
