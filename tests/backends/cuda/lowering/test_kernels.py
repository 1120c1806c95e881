"""The LLVM IR module of a kernel: how parameters are passed, what limits its launch, which memory and texts it has."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.lowering import LOWERINGS, parameter_type
from kernelpack.ir.dialect import definition
from kernelpack.ir.types import BF16, F32, I1, I64, PointerType, Type
from kernelpack.options import Options
from tests.backends.fragments import in_order
from tests.backends.gpu.lowering.llir import SM90, module


@pytest.mark.parametrize(
    ("kind", "passed"),
    [(F32, "float"), (BF16, "bfloat"), (I64, "i64"), (I1, "i8"), (PointerType(F32), "ptr addrspace(1)")],
    ids=str,
)
def test_parameters_are_passed_by_value_and_booleans_as_bytes(kind: Type, passed: str) -> None:
    assert parameter_type(kind) == passed


def test_a_kernel_takes_its_parameters_in_order() -> None:
    text = module("tt.store %p, %n, %c : !tt.ptr<i32>", "%p: !tt.ptr<i32> {tt.divisibility = 16 : i32}, %n: i32, %c: i1")
    in_order(
        text,
        """
        target triple = "nvptx64-nvidia-cuda"
        @shared_memory = external addrspace(3) global [0 x i8], align 1024
        define ptx_kernel void @kernel(ptr addrspace(1) align 16 %p.0, i32 %n.0, i8 %c.0) "nvvm.reqntid"="32" {
        %C = icmp ne i8 %c.0, 0
        ret void
        }
        """,
    )


def test_a_descriptor_is_a_tensor_map_by_value() -> None:
    text = module("", "%d: !tt.tensordesc<tensor<64x64xf16>>", target=SM90)
    assert 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" %d.0' in text


def test_options_limit_threads_and_registers() -> None:
    text = module("", "", options=Options(num_warps=8, maxnreg=96))
    assert 'define ptx_kernel void @kernel() "nvvm.reqntid"="256" "nvvm.maxnreg"="96" {' in text


def test_texts_are_constants_of_the_module() -> None:
    text = module('"tt.assert"(%c) <{message = "positive"}> : (i1) -> ()', "%c: i1")
    assert '@message0 = private unnamed_addr addrspace(1) constant [9 x i8] c"positive\\00"' in text


def test_what_is_called_is_declared_once() -> None:
    text = module("%a = math.sin %x : f32\n%b = math.sin %a : f32\ntt.store %p, %b : !tt.ptr<f32>", "%x: f32, %p: !tt.ptr<f32>")
    assert text.count("declare float @__nv_sinf(float)") == 1


def test_every_row_of_the_table_is_an_operation() -> None:
    assert [name for name in LOWERINGS if definition(name).name != name] == []
