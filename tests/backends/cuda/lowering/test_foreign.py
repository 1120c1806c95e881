"""Code from outside: libdevice, the author's PTX, regions for elements; what does not fit is refused with its line."""

from __future__ import annotations

import pytest

from kernelpack.errors import CompilationError
from kernelpack.layout.families import Threads, spread
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import lower

L = {"L": spread((128,), 4, (0,), Threads(1, 32))}


def test_a_function_of_libdevice_is_called_for_each_register() -> None:
    text = lower(
        '%r = tt.extern_elementwise %x, %y {symbol = "__nv_powf"} : (tensor<128xf32, $L>, tensor<128xf32, $L>) -> tensor<128xf32, $L>\ntt.return %r : tensor<128xf32, $L>',
        "%x: tensor<128xf32, $L>, %y: tensor<128xf32, $L>",
        L,
    )
    for register in range(4):
        in_order(text, f"%A = call float @__nv_powf(float %x{register}, float %y{register})")


def mapped(pack: int, body: str, results: int = 1) -> str:
    inputs = ", ".join(f"%a{number}: f32" for number in range(pack))
    kinds = ", ".join(["tensor<128xf32, $L>"] * results)
    result = "%r" if results == 1 else f"%r:{results}"
    last = "%r" if results == 1 else f"%r#{results - 1}"
    return lower(
        f'{result} = "tt.map_elementwise"(%x) <{{pack = {pack} : i32}}> ({{\n^bb0({inputs}):\n{body}\n}}) : (tensor<128xf32, $L>) -> ({kinds})\ntt.return {last} : tensor<128xf32, $L>',
        "%x: tensor<128xf32, $L>",
        L,
    )


def test_a_region_is_applied_to_neighbouring_registers() -> None:
    text = mapped(2, "%s = arith.addf %a0, %a1 : f32\ntt.map_elementwise.return %s, %a0 : f32, f32")
    in_order(
        text,
        """
        %A = fadd contract float %x0, %x1
        %B = fadd contract float %x2, %x3
        return %A, %x0, %B, %x2
        """,
    )


def test_a_region_gives_several_tiles() -> None:
    text = mapped(2, "tt.map_elementwise.return %a0, %a1, %a1, %a0 : f32, f32, f32, f32", results=2)
    assert text == "return %x1, %x0, %x3, %x2"


def test_a_tile_with_fewer_registers_than_a_region_takes_is_refused() -> None:
    names = ", ".join(f"%a{number}" for number in range(8))
    with pytest.raises(CompilationError, match="takes 8 elements at a time, a thread has 4 of this tile") as raised:
        mapped(8, f"tt.map_elementwise.return {names} : {', '.join(['f32'] * 8)}")
    assert "use a larger tile, fewer warps, or a smaller pack" in str(raised.value)


def assembly(
    text: str, constraints: str, kind: str = "f32", result: str = "f32", pack: int = 1, pure: bool = True, results: int = 1
) -> str:
    kinds = ", ".join([f"tensor<128x{result}, $L>"] * results)
    name = "%r" if results == 1 else f"%r:{results}"
    last = "%r" if results == 1 else "%r#1"
    return lower(
        f"""
        {name} = "tt.elementwise_inline_asm"(%x) <{{
        asm_string = "{text}", constraints = "{constraints}", packed_element = {pack} : i32, pure = {str(pure).lower()}
        }}> : (tensor<128x{kind}, $L>) -> ({kinds})
        tt.return {last} : tensor<128x{result}, $L>
        """,
        f"%x: tensor<128x{kind}, $L>",
        L,
    )


def test_ptx_runs_once_a_register() -> None:
    text = assembly("ex2.approx.f32 $0, $1;", "=f,f")
    in_order(text, '%A = call float asm "ex2.approx.f32 $0, $1;", "=f,f"(float %x0)\n%B = call float asm ...(float %x1)')
    assert count(text, "%A = call float asm ...") == 4
    assert "asm sideeffect" in assembly("ex2.approx.f32 $0, $1;", "=f,f", pure=False)


def test_narrow_elements_share_a_word() -> None:
    in_order(
        assembly("add.f16x2 $0, $1, $1;", "=r,r", "f16", "f16", pack=2),
        """
        %A = insertelement <2 x half> poison, half %x0, i64 0
        %B = insertelement <2 x half> %A, half %x1, i64 1
        %C = bitcast <2 x half> %B to i32
        %D = call i32 asm "add.f16x2 $0, $1, $1;", "=r,r"(i32 %C)
        %E = bitcast i32 %D to <2 x half>
        %F = extractelement <2 x half> %E, i64 0
        """,
    )


def test_registers_have_the_type_that_a_letter_names() -> None:
    in_order(
        assembly("mov.b32 $0, $1;", "=r,r", "f16", "f32"),
        "%A = bitcast half %x0 to i16\n%B = zext i16 %A to i32\n%C = call i32 asm ...\n%D = bitcast i32 %C to float",
    )


def test_several_outputs_are_a_structure() -> None:
    text = assembly("mov.b32 $0, $2; mov.b32 $1, $2;", "=f,=f,f", results=2)
    in_order(
        text,
        '%A = call {float, float} asm "mov.b32 $0, $2; mov.b32 $1, $2;", "=f,=f,f"(float %x0)\n%B = extractvalue {float, float} %A, 0\n%C = extractvalue {float, float} %A, 1',
    )


@pytest.mark.parametrize(
    ("constraints", "pack", "message"),
    [
        ("=f,f,f", 1, "have 2 inputs, the operation has 1"),
        ("=f,=f,f", 1, "have 2 outputs, the operation has 1"),
        ("=f,f", 2, "have 1 inputs, the operation has 2"),
        ("=q,f", 1, "constraint 'q' of inline assembly is not one of"),
    ],
)
def test_constraints_that_do_not_fit_are_refused(constraints: str, pack: int, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        assembly("x", constraints, pack=pack)
