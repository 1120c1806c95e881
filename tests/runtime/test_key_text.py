"""What a call is compiled for is written as JSON, which names functions and classes of the process that reads it, and runs nothing."""

from __future__ import annotations

import enum
import json
import os
from typing import Any, NamedTuple

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.backends.installed import backend_of
from kernelpack.compiler.target_backend import TargetBackend
from kernelpack.kernel.types import block_type
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.key_text import as_json, from_json
from kernelpack.runtime.specialization import specialize
from kernelpack.runtime.specialization_data import read_specialization_data, serialize_specialization_data
from kernelpack.target import GPUTarget, Target
from kernelpack.tools.tensor_descriptor import TensorDescriptor


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
    None, True, 1, "text", "fp32", 0.5, float("inf"), -0.0, (), (1, (2.0, "x")), tl.float32, tl.pointer_type(tl.float16), Pair(1, 2.0),
    Pair, Box, Mode.FAST, three, tuple, block_type(tl.int8, [2, 4]), (tl.int8, "int8", (Pair,)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=[type(value).__name__ for value in VALUES])
def test_a_part_of_a_key_is_read_as_it_was_written(value: Any) -> None:
    again = from_json(json.loads(json.dumps(as_json(value))))
    assert (again, type(again), repr(again)) == (value, type(value), repr(value)) or isinstance(value, tuple)
    assert again == value


def test_a_class_that_cannot_be_named_is_not_written() -> None:
    class Inside(NamedTuple):
        one: int

    for value in (Inside, Inside(1), object(), os, os.system, {"a": 1}, [1, 2]):
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
        {"jit_function": "os:system"},
        {"constexpr": 3},
        {"unknown": 3},
    ],
)
def test_what_another_process_says_names_no_other_code(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "system", lambda *_: pytest.fail("it runs"))
    with pytest.raises((LookupError, TypeError, ValueError)):
        from_json(written)
    with pytest.raises(RuntimeError, match="Specialization data cannot be read: "):
        three.preload(json.dumps({**specialization(), "constant_keys": [[0]], "constant_vals": [written]}))


def specialization() -> dict[str, Any]:
    """What is written of a warmup of `three`."""
    told: list[str] = []
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = lambda **info: told.append(info["compile"]["specialization_data"])
        three.device_caches.clear()
        three.warmup(torch.float32)
    return dict(json.loads(told[0]))


def test_other_programs_read_what_is_written() -> None:
    """By Triton's names, which packages read that compile in helper processes."""
    written = specialization()
    assert written["name"] == f"{__name__}.three"
    assert written["signature"] == {"out": "*fp32"}
    assert (written["constant_keys"], written["constant_vals"]) == ([], [])
    assert written["options"]["num_warps"] == 4
    target = GPUTarget(**written["target"])
    assert written["options"]["arch"] == str(target.as_target())
    attrs = dict(zip(map(tuple, written["attrs_keys"]), written["attrs_vals"], strict=True))
    compiled = kp.compile(kp.ASTSource(three, written["signature"], {}, attrs), target=target, options=written["options"])
    assert compiled.hash == three.preload(json.dumps(written)).hash


@pytest.mark.parametrize(
    "change",
    [
        {"attrs_keys": [[7]], "attrs_vals": [[["tt.divisibility", 16]]]},
        {"attrs_keys": [[0]], "attrs_vals": [[["tt.divisibility", "16"]]]},
        {"attrs_keys": [[0]], "attrs_vals": []},
        {"constant_keys": [[]], "constant_vals": [1]},
        {"signature": {"missing": "i32"}},
        {"signature": []},
        {"options": {"num_warps": 4}},
        {"key": 3},
        {"more": 3},
    ],
)
def test_a_specialization_that_does_not_fit_the_kernel_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="Specialization data cannot be read: "):
        three.preload(json.dumps(specialization() | change))


@pytest.mark.parametrize(
    "text", ["", "3", "[]", "{}", '{"name": "three"}', '{"name": "three", "target": {"backend": "cpu"}}', "[" * 100_000]
)
def test_text_that_is_no_specialization_is_refused(text: str) -> None:
    with pytest.raises(RuntimeError, match="Specialization data "):
        three.preload(text)


class Strides(NamedTuple):
    row_step: tl.int64
    column_step: int


@kp.aggregate
class View:
    data: tl.tensor
    row_data: tl.tensor


@kp.jit
def many(a, a_0, pair, strides, view, block, KIND: tl.constexpr, FUNCTION: tl.constexpr, ONE: tl.constexpr = 1.0):
    pass


def test_a_source_says_all_that_a_call_is_compiled_for() -> None:
    x = torch.zeros(64, 64, dtype=torch.float16)
    arguments = {
        "a": x, "a_0": 32, "pair": (x, (1, 16)), "strides": Strides(1, 1), "view": View(x, x), "block": TensorDescriptor.from_tensor(x, [16, 16]),
        "KIND": "fp32", "FUNCTION": three, "ONE": -0.0,
    }  # fmt: skip
    special, _ = specialize(many, arguments, backend_of(Target("cuda", "sm_90a")))
    assert {fact.parameter for fact in special.facts} >= {
        "a",
        "a_0",
        "pair_0",
        "pair_1_1",
        "view_row_data",
        "block_base",
        "block_stride_0",
    }
    source = ASTSource.of(many, special)
    options = TargetBackend(Target("cuda", "sm_90a")).parse_options({"num_warps": 8})
    data = serialize_specialization_data(
        many.full_name, source.signature, source.constants, source.attrs, options, "key", GPUTarget("cuda", 90)
    )
    key, read, again = read_specialization_data(many, data, GPUTarget("cuda", 90))
    assert (key, again) == ("key", options)
    assert source.specialization == read.specialization == special
    assert source.hash() == read.hash()
