"""ttir by the names of Triton's binding of MLIR (tests/inductor: torch finds by it which tensors a kernel reads and writes)."""

from __future__ import annotations

import torch

import kernelpack.language as tl
from kernelpack import jit
from kernelpack.kernel.paths import find_paths_if, get_iterable_path
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.argument_types import mangle_type, native_specialize_impl
from kernelpack.simt.emulator import Emulator
from kernelpack.target import GPUTarget

HERE = GPUTarget("cpu", "", 32)


@jit
def store_it(p, v):
    tl.store(p, v)


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
