"""dtype, pointer_type, block_type: names, queries, identity, conversion to the IR."""

from __future__ import annotations

import pickle

import pytest

import kernelpack.language as tl
from kernelpack.errors import CompilationError
from kernelpack.kernel.signatures import parse_type


def test_scalars_are_single_objects() -> None:
    assert tl.dtype("fp16") is tl.float16
    assert pickle.loads(pickle.dumps(tl.bfloat16)) is tl.bfloat16
    assert tl.float32 != tl.float64
    assert {tl.int8: 1}[tl.dtype("int8")] == 1
    with pytest.raises(CompilationError, match="there is no dtype 'float31'"):
        tl.dtype("float31")


@pytest.mark.parametrize(
    ("kind", "text", "shown", "ir", "bits"),
    [
        (tl.int1, "int1", "tl.int1", "i1", 1),
        (tl.uint8, "uint8", "tl.uint8", "i8", 8),
        (tl.int64, "int64", "tl.int64", "i64", 64),
        (tl.float16, "fp16", "tl.float16", "f16", 16),
        (tl.bfloat16, "bf16", "tl.bfloat16", "bf16", 16),
        (tl.float64, "fp64", "tl.float64", "f64", 64),
        (tl.float8e4nv, "fp8e4nv", "tl.float8e4nv", "f8E4M3FN", 8),
    ],
)
def test_scalars(kind: tl.dtype, text: str, shown: str, ir: str, bits: int) -> None:
    assert (str(kind), repr(kind), str(kind.to_ir()), kind.primitive_bitwidth) == (text, shown, ir, bits)
    assert kind.itemsize == max(1, bits // 8)
    assert kind.scalar is kind


def test_queries() -> None:
    assert tl.float16.is_fp16()
    assert tl.float16.is_floating()
    assert not tl.float16.is_int()
    assert tl.float8e5.is_fp8()
    assert tl.float8e5.is_floating()
    assert not tl.float8e5.is_standard_floating()
    assert tl.int1.is_bool()
    assert tl.int1.is_int_unsigned()
    assert tl.uint32.int_signedness == tl.dtype.SIGNEDNESS.UNSIGNED
    assert tl.int8.int_bitwidth == 8
    assert (tl.int8.get_int_min_value(), tl.int8.get_int_max_value()) == (-128, 127)
    assert (tl.uint8.get_int_min_value(), tl.uint8.get_int_max_value()) == (0, 255)
    assert tl.bfloat16.fp_mantissa_width == 7
    assert tl.int1.kind() < tl.uint8.kind() < tl.float16.kind()


def test_pointers_and_tiles() -> None:
    pointer = tl.pointer_type(tl.float16)
    assert pointer == tl.pointer_type(tl.float16)
    assert pointer != tl.pointer_type(tl.float16, const=True)
    assert pointer.element_ty is tl.float16
    assert pointer.is_ptr()
    assert str(pointer.to_ir()) == "!tt.ptr<f16>"
    tile = tl.block_type(pointer, [4, 8])
    assert tile == tl.block_type(pointer, (4, 8))
    assert hash(tile) == hash(tl.block_type(pointer, (4, 8)))
    assert tile.scalar is pointer
    assert tile.is_block()
    assert (tile.shape, tile.numel) == ((4, 8), 32)
    assert str(tile.to_ir()) == "tensor<4x8x!tt.ptr<f16>>"
    assert pickle.loads(pickle.dumps(tile)) == tile


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), "at least one"),
        ((3,), "powers of two"),
        ((0,), "powers of two"),
        ((2.0,), "compile-time integer"),
        ((1 << 21,), "smaller blocks"),
    ],
)
def test_shapes_that_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(CompilationError, match=f"(?s){message}"):
        raise_with_cure(shape)


def raise_with_cure(shape: tuple[int, ...]) -> None:
    try:
        tl.block_type(tl.int8, shape)
    except CompilationError as problem:
        raise CompilationError(str(problem)) from problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [("*fp32", "pointer<fp32>"), ("*kbf16", "const_pointer<bf16>"), ("i64", "int64"), ("u8", "uint8"), ("i1", "int1"), ("u1", "int1"),
     ("fp64", "fp64"), ("**i32", "pointer<pointer<int32>>"), ("*fp8e5", "pointer<fp8e5>")],
)  # fmt: skip
def test_signature_types(text: str, expected: str) -> None:
    assert str(parse_type(text)) == expected


def test_unknown_signature_types_are_refused() -> None:
    with pytest.raises(ValueError, match="'f32' is not a type of a kernel argument"):
        parse_type("*f32")
