"""Functions that stay functions: registers pass one by one, shared memory begins where the caller says; who may not stay one."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering.calls import why_inlined
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.ir.text import parse_module
from kernelpack.layout.encoding import LinearEncoding
from kernelpack.layout.families import Threads, spread
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.fragments import count, in_order

TILE = f"tensor<64xf32, {LinearEncoding(spread((64,), 2, (0,), Threads(1, 32)))}>"


def module(helper: str, call: str, attributes: str = "") -> str:
    """The LLVM IR of a kernel that calls a function."""
    text = f"""
    module {{
      tt.func public @kernel(%x: f32, %n: i32) {{
        %t = tt.splat %x : f32 -> {TILE}
        {call}
        tt.return
      }}
      tt.func private @helper{helper}
    }}
    """
    parsed = parse_module(text)
    parsed.attributes["ttg.shared"] = 0
    _, function = parsed.body.operations
    if attributes:
        function.attributes[attributes] = 128
    return ttgir_to_llir(parsed, CudaContext(Target.parse("cuda:sm_80"), Options(num_warps=1), "kernel"))


TWICE = f"(%a: {TILE}, %k: i32) -> ({TILE}, i32) attributes {{noinline = true}} {{\n%b = arith.addf %a, %a : {TILE}\ntt.return %b, %k : {TILE}, i32\n}}"
CALL = f"%r:2 = tt.call @helper(%t, %n) : ({TILE}, i32) -> ({TILE}, i32)"


def test_tiles_pass_as_the_registers_of_each_thread() -> None:
    text = module(TWICE, CALL)
    in_order(
        text,
        """
        define internal {float, float, i32} @helper(float %a.0, float %a.1, i32 %k.0) noinline convergent {
        %S = fadd contract float %a.0, %a.0
        %T = fadd contract float %a.1, %a.1
        %U = insertvalue {float, float, i32} poison, float %S, 0
        %V = insertvalue {float, float, i32} %U, float %T, 1
        %W = insertvalue {float, float, i32} %V, i32 %k.0, 2
        ret {float, float, i32} %W
        """,
    )
    in_order(
        text,
        """
        %R = call {float, float, i32} @helper(float ..., float ..., i32 ...) convergent
        %A = extractvalue {float, float, i32} %R, 0
        %B = extractvalue {float, float, i32} %R, 1
        %C = extractvalue {float, float, i32} %R, 2
        """,
    )


def test_a_single_result_is_returned_as_it_is_and_none_is_void() -> None:
    text = module(
        "(%k: i32) -> i32 attributes {noinline = true} {\ntt.return %k : i32\n}", "%r = tt.call @helper(%n) : (i32) -> i32"
    )
    in_order(text, "define internal i32 @helper(i32 %k.0) noinline convergent {\nret i32 %k.0")
    text = module("(%k: i32) attributes {noinline = true} {\ntt.return\n}", "tt.call @helper(%n) : (i32) -> ()")
    in_order(text, "define internal void @helper(i32 %k.0) noinline convergent {\nret void")
    assert count(text, "call void @helper(i32 ...) convergent") == 1


def test_a_function_with_buffers_gets_the_address_of_its_shared_memory() -> None:
    text = module(
        "(%k: i32) attributes {noinline = true} {\ntt.return\n}",
        "tt.call @helper(%n) {allocation.offset = 256 : i32} : (i32) -> ()",
        attributes="ttg.shared",
    )
    in_order(text, "define internal void @helper(i32 %k.0, ptr addrspace(3) %shared.memory) noinline convergent {")
    in_order(
        text,
        "%P = getelementptr i8, ptr addrspace(3) @shared_memory, i64 256\ncall void @helper(i32 ..., ptr addrspace(3) %P) convergent",
    )


def reason(helper: str, call: str, kernel: str = "", arguments: str = "%n: i32") -> str | None:
    text = f"module {{\ntt.func public @kernel({arguments}) {{\n{kernel}\n{call}\ntt.return\n}}\ntt.func private @helper{helper}\n}}"
    return next(why_inlined(op) for op in parse_module(text).walk() if op.name == "tt.call")


PLAIN = "(%k: i32) attributes {noinline = true} {\ntt.return\n}"


@pytest.mark.parametrize(
    ("helper", "call", "kernel", "arguments", "why"),
    [
        (PLAIN, "tt.call @helper(%n) : (i32) -> ()", "", "%n: i32", None),
        (
            "(%d: !tt.tensordesc<tensor<8x16xf16>>) attributes {noinline = true} {\ntt.return\n}",
            "tt.call @helper(%d) : (!tt.tensordesc<tensor<8x16xf16>>) -> ()",
            "",
            "%d: !tt.tensordesc<tensor<8x16xf16>>",
            "does not pass between functions",
        ),
        (
            PLAIN,
            "tt.call @helper(%m) : (i32) -> ()",
            "%d = tt.make_tensor_descriptor %p, [%m, %m], [%s, %s] : <f16>, <tensor<8x16xf16>>",
            "%p: !tt.ptr<f16>, %m: i32, %s: i64",
            "the kernel makes a tensor descriptor",
        ),
    ],
)
def test_who_is_inlined_and_why(helper: str, call: str, kernel: str, arguments: str, why: str | None) -> None:
    got = reason(helper, call, kernel, arguments)
    assert got is None if why is None else why in str(got)
