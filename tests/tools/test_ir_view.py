"""ttir by the names of Triton's binding of MLIR: torch finds by it which tensors a kernel reads and writes."""

from __future__ import annotations

import logging

import pytest
import torch
from torch._higher_order_ops import triton_kernel_wrap

import kernelpack.language as tl
from kernelpack import as_triton, jit
from kernelpack.kernel.paths import find_paths_if, get_iterable_path
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.argument_types import mangle_type, native_specialize_impl
from kernelpack.simt.emulator import Emulator
from kernelpack.target import GPUTarget

HERE = GPUTarget("cpu", "", 32)


@jit
def store_it(p, v):
    tl.store(p, v)


@jit
def kernel(read, written, added, both, count, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    i = 0
    while i < n:
        total += tl.load(read + i * BLOCK + at)
        i += 1
    for _ in range(n):
        total += 1
    store_it(written + at, total)
    if n > 3:
        tl.atomic_add(added, tl.sum(total))
        tl.store(both + at, tl.load(both + at) + 1)
    tl.atomic_cas(count, 0, 1)


def test_parts_have_numbers_and_parents_come_last() -> None:
    source = ASTSource(store_it, {"p": "*fp32", "v": "fp32"})
    module = source.make_ir(HERE, None, {}, {}, None)
    assert module.verify()
    names: list[str] = []

    def visit(op):
        names.append(op.get_name())
        if op.get_name() == "tt.store":
            inside = op.get_block()
            assert [op.get_operand(0).id(), op.get_operand(1).id()] == [inside.get_argument(i).id() for i in range(2)]
            assert inside.get_parent().get_parent_operation().get_str_attr("sym_name") == "store_it"
            assert op.get_num_results() == op.get_num_regions() == 0
            assert op.get_bool_attr("no_such") is None

    module.walk(visit)
    assert names == ["tt.store", "tt.return", "tt.func", "builtin.module"]


@pytest.fixture
def stand_in():
    as_triton.install()
    yield
    as_triton.uninstall()


@pytest.mark.usefixtures("stand_in")
def test_torch_finds_what_a_kernel_reads_and_writes(caplog: pytest.LogCaptureFixture) -> None:
    tensors = {name: torch.zeros(64) for name in ("read", "written", "added", "both")}
    arguments = {**tensors, "count": torch.zeros(1, dtype=torch.int32), "n": 5, "BLOCK": 16}
    with caplog.at_level(logging.WARNING):
        found = triton_kernel_wrap.identify_accessed_tensors(kernel, arguments, {})
    assert caplog.records == [], "torch says so where it has to assume that everything is written"
    assert {access.name for access in found.read_writes.reads} >= {"read", "both"}
    assert {access.name for access in found.read_writes.writes} == {"written", "added", "both", "count"}


def test_values_have_the_types_that_signatures_name() -> None:
    aligned = torch.zeros(64)
    assert [mangle_type(value) for value in (aligned, aligned.bool(), 1, 1 << 40, 1.0, None, True)] == [
        "*fp32", "*i1", "i32", "i64", "fp32", "constexpr", "i1",
    ]  # fmt: skip
    assert native_specialize_impl(None, 1) == ("constexpr", 1)
    assert native_specialize_impl(None, 1, specialize_value=False) == ("i32", None)
    assert native_specialize_impl(None, aligned) == ("*fp32", None), "CPUs do not ask"
    with Emulator("cuda:sm_80"):
        assert native_specialize_impl(None, aligned) == ("*fp32", "D")
        assert native_specialize_impl(None, aligned, is_const=True) == ("*kfp32", "D")
        assert native_specialize_impl(None, aligned[1:]) == ("*fp32", None)
        assert native_specialize_impl(None, aligned, align=False) == ("*fp32", None)
        assert native_specialize_impl(None, 32) == ("i32", "D")
        assert native_specialize_impl(None, (aligned, 1)) == (("*fp32", "constexpr"), ("D", 1))


def test_paths_lead_to_entries() -> None:
    nested = ["a", (1, ["b"]), "c"]
    paths = find_paths_if(nested, lambda path, value: isinstance(value, str))
    assert paths == [(0,), (1, 1, 0), (2,)]
    assert [get_iterable_path(nested, path) for path in paths] == ["a", "b", "c"]
