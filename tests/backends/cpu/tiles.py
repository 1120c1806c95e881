"""Runs kernels with AMX's tiles: on a stand-in for the instructions (tiles_stand_in.cpp), the rest compiled for AVX2; or on the CPU, where it
has them.
"""

from __future__ import annotations

import ctypes
import functools
import re
import string
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from kernelpack.backends.cpu.facts.features import level_of, runnable
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir
from kernelpack.ir.core import Operation
from kernelpack.kernel.jit import JITFunction
from kernelpack.llvm import codegen
from kernelpack.llvm.text import literal, vector_type, vector_width
from kernelpack.options import Options
from kernelpack.pack.ninja import compiler
from kernelpack.target import Target
from tests.backends.cpu.kernels import Address, loaded_object
from tests.backends.cpu.plan.plans import ttir

AMX, V3 = Target.parse("cpu:x86-64-v4+amx"), Target.parse("cpu:x86-64-v3")
INSTRUCTIONS = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps", "tdpbssd")


def has_tiles() -> bool:
    """Whether this machine's CPU has AMX."""
    return AMX in runnable()


@functools.cache
def stand_in() -> ctypes.CDLL:
    """Returns the stand-in, which kernels call from now on."""
    codegen.initialise()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "stand_in.so"
        options = [
            "-std=c++17",
            "-O2",
            "-mavx2",
            "-mfma",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
        ]
        subprocess.run(
            [*compiler(), *options, "-o", str(library), str(Path(__file__).with_name("tiles_stand_in.cpp"))], check=True
        )
        loaded = ctypes.CDLL(str(library))
    loaded.stand_in_products.restype = ctypes.c_long
    for name in INSTRUCTIONS:
        llvm.add_symbol(f"stand_in_{name}", ctypes.cast(loaded[f"stand_in_{name}"], ctypes.c_void_p).value)
    return loaded


def on_stand_in(kernel: CompiledKernel) -> CompiledKernel:
    """Returns a kernel for AMX as one for AVX2 that calls the stand-in."""
    stand_in()
    llir = kernel.stages["llir"]
    for name in INSTRUCTIONS:
        llir = llir.replace(f"@llvm.x86.{name}(", f"@stand_in_{name}(")
    llir = with_bf16_conversions(llir)
    for name in _OTHERS:
        if f"@llvm.x86.avx512.{name}(" in llir:
            llir = re.sub(rf"declare .*@llvm\.x86\.avx512\.{re.escape(name)}\(.*\n", "", llir)
            llir = llir.replace(f"@llvm.x86.avx512.{name}(", f"@stand_in_{name}(") + _OTHERS[name]
    assert "@llvm.x86." not in llir.replace("@llvm.x86.sse.", ""), "an instruction without a stand-in"
    return replace(kernel, target=V3, image=codegen.emit_object(llir, level_of(V3).machine))


def with_bf16_conversions(llir: str) -> str:
    """Returns a kernel with what `vcvtneps2bf16` does in plain arithmetic: rounding to the nearest, ties to even; subnormal numbers are
    zero."""
    pattern = re.compile(r"fptrunc ((?:<\d+ x )?)float(>?) (%\w+) to (?:<\d+ x )?bfloat>?")
    widths = sorted({vector_width(f"{match[1]}float{match[2]}") for match in pattern.finditer(llir)})
    for width in widths:
        llir += _CONVERSION.substitute(
            {name: vector_type(kind, width) for name, kind in _KINDS.items()},
            **{f"c{number}": literal(number, vector_type("i32", width)).name for number in _NUMBERS},
            lowest=literal(-1 << 31, vector_type("i32", width)).name,
            width=width,
        )
    return pattern.sub(lambda match: _called(match[3], vector_width(f"{match[1]}float{match[2]}")), llir)


def _called(value: str, width: int) -> str:
    return f"call {vector_type('bfloat', width)} @stand_in_bf16_{width}({vector_type('float', width)} {value})"


_KINDS = {"f32": "float", "bf16": "bfloat", "i32": "i32", "i16": "i16", "i1": "i1"}
_NUMBERS = (0, 1, 0x7FFF, 0x400000, 0x7F800000, 16)
_CONVERSION = string.Template("""
define internal $bf16 @stand_in_bf16_$width($f32 %x) alwaysinline {
  %bits = bitcast $f32 %x to $i32
  %high = lshr $i32 %bits, ${c16}
  %odd = and $i32 %high, ${c1}
  %half = add $i32 %odd, ${c32767}
  %near = add $i32 %bits, %half
  %quiet = or $i32 %bits, ${c4194304}
  %nan = fcmp uno $f32 %x, %x
  %some = select $i1 %nan, $i32 %quiet, $i32 %near
  %exponent = and $i32 %bits, ${c2139095040}
  %tiny = icmp eq $i32 %exponent, ${c0}
  %zero = and $i32 %bits, ${lowest}
  %chosen = select $i1 %tiny, $i32 %zero, $i32 %some
  %shifted = lshr $i32 %chosen, ${c16}
  %short = trunc $i32 %shifted to $i16
  %result = bitcast $i16 %short to $bf16
  ret $bf16 %result
}
""")


def _quads() -> str:
    """Returns the lines that add every four neighbours of %products to %sum."""
    lines = []
    for number in range(4):
        lanes = ", ".join(f"i32 {lane}" for lane in range(number, 64, 4))
        lines.append(f"  %p{number} = shufflevector <64 x i32> %products, <64 x i32> poison, <16 x i32> <{lanes}>")
        lines.append(f"  %sum{number + 1} = add <16 x i32> %{f'sum{number}' if number else 'sum'}, %p{number}")
    return "\n".join(lines)


_OTHERS = {
    "mask.reduce.ps.512": """
declare <16 x float> @llvm.rint.v16f32(<16 x float>)
define internal <16 x float> @stand_in_mask.reduce.ps.512(<16 x float> %x, i32 %how, <16 x float> %other, i16 %mask, i32 %mode) alwaysinline {
  %n = call <16 x float> @llvm.rint.v16f32(<16 x float> %x)
  %r = fsub <16 x float> %x, %n
  %endless = fcmp oeq <16 x float> %x, %n
  %result = select <16 x i1> %endless, <16 x float> zeroinitializer, <16 x float> %r
  ret <16 x float> %result
}
""",
    "mask.scalef.ps.512": """
declare <16 x float> @llvm.ldexp.v16f32.v16i32(<16 x float>, <16 x i32>)
define internal <16 x float> @stand_in_mask.scalef.ps.512(<16 x float> %x, <16 x float> %n, <16 x float> %other, i16 %mask, i32 %mode) alwaysinline {
  %chosen = bitcast i16 %mask to <16 x i1>
  %power = select <16 x i1> %chosen, <16 x float> %n, <16 x float> zeroinitializer
  %exponent = fptosi <16 x float> %power to <16 x i32>
  %scaled = call <16 x float> @llvm.ldexp.v16f32.v16i32(<16 x float> %x, <16 x i32> %exponent)
  %result = select <16 x i1> %chosen, <16 x float> %scaled, <16 x float> %other
  ret <16 x float> %result
}
""",
    "vpdpbusd.512": f"""
define internal <16 x i32> @stand_in_vpdpbusd.512(<16 x i32> %sum, <16 x i32> %a, <16 x i32> %b) alwaysinline {{
  %a.bytes = bitcast <16 x i32> %a to <64 x i8>
  %b.bytes = bitcast <16 x i32> %b to <64 x i8>
  %a.wide = zext <64 x i8> %a.bytes to <64 x i32>
  %b.wide = sext <64 x i8> %b.bytes to <64 x i32>
  %products = mul <64 x i32> %a.wide, %b.wide
{_quads()}
  ret <16 x i32> %sum4
}}
""",
}
"""What instructions of AVX-512 do, as far as kernels use them: x less the nearest whole number, x times a power of two, and sums of four
products of unsigned and signed bytes."""


def compiled(kernel: JITFunction | Operation, **types: Any) -> CompiledKernel:
    module = ttir(kernel, **types) if isinstance(kernel, JITFunction) else kernel
    return compile_ttir(module, AMX, Options())


def launch(kernel: CompiledKernel, *tensors: Any, grid: tuple[int, int, int] = (1, 1, 1)) -> None:
    """Runs a kernel on tensors, or numbers."""
    loaded_object(kernel).launch(grid, [Address(each.data_ptr()) if hasattr(each, "data_ptr") else each for each in tensors])
