"""Text of every ttir operation, exactly as it prints. The tables are walked against it: a row without an example fails."""

from __future__ import annotations

import textwrap

from kernelpack.ir.core import Operation
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify


def function(body: str, arguments: str = "", results: str = "") -> str:
    """Returns the text of a module with one function whose body is given without indentation or terminator `tt.return`."""
    lines = textwrap.dedent(body).strip("\n").split("\n")
    if not lines[-1].startswith("tt.return"):
        lines.append("tt.return")
    inner = textwrap.indent("\n".join(line for line in lines if line), "    ")
    returns = f" -> {results}" if results else ""
    return f"module {{\n  tt.func public @kernel({arguments}){returns} attributes {{noinline = false}} {{\n{inner}\n  }}\n}}\n"


ADD = function(
    """
    %pid = tt.get_program_id x : i32
    %c8 = arith.constant 8 : i32
    %base = arith.muli %pid, %c8 : i32
    %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %bs = tt.splat %base : i32 -> tensor<8xi32>
    %off = arith.addi %bs, %r : tensor<8xi32>
    %ns = tt.splat %n : i32 -> tensor<8xi32>
    %m = arith.cmpi slt, %off, %ns : tensor<8xi32>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %xp = tt.addptr %xs, %off : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %v = tt.load %xp, %m : tensor<8x!tt.ptr<f32>>
    %w = arith.addf %v, %v : tensor<8xf32>
    %ys = tt.splat %y : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %yp = tt.addptr %ys, %off : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    tt.store %yp, %w, %m : tensor<8x!tt.ptr<f32>>
    """,
    "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32",
)
"""Doubles the first n elements of x into y, in blocks of 8."""


def parse(text: str) -> Operation:
    """Parses and verifies."""
    module = parse_module(text)
    verify(module)
    return module


_INT_BINARY = [
    "addi",
    "muli",
    "andi",
    "ori",
    "xori",
    "maxsi",
    "maxui",
    "minsi",
    "minui",
    "subi",
    "divsi",
    "divui",
    "remsi",
    "remui",
    "shli",
    "shrsi",
    "shrui",
]
_FLOAT_BINARY = ["addf", "mulf", "maximumf", "maxnumf", "minimumf", "minnumf", "subf", "divf", "remf"]
_MATH_UNARY = ["absf", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log1p", "log2", "rsqrt", "sin", "sqrt", "tanh"]
_CASTS = [
    ("extsi", "i8", "i32"),
    ("extui", "i1", "i32"),
    ("trunci", "i64", "i32"),
    ("extf", "bf16", "f32"),
    ("truncf", "f32", "f16"),
    ("sitofp", "i32", "f32"),
    ("uitofp", "i64", "f64"),
    ("fptosi", "f32", "i32"),
    ("fptoui", "f16", "i8"),
    ("bitcast", "f32", "i32"),
]


def _block(name: str, signature: str, combine: str, attributes: str) -> str:
    return f"""
    %0 = "tt.{name}"(%a) <{attributes}> ({{
    ^bb0(%x: f32, %y: f32):
      %1 = {combine} %x, %y : f32
      tt.{name}.return %1 : f32
    }}) : {signature}
    """


EXAMPLES: dict[str, str] = {
    "int binary": function(
        "\n".join(f"%{n} = arith.{name} %a, %b : i32" for n, name in enumerate(_INT_BINARY)), "%a: i32, %b: i32"
    ),
    "float binary": function(
        "\n".join(f"%{n} = arith.{name} %a, %b : tensor<4x2xf32>" for n, name in enumerate(_FLOAT_BINARY)),
        "%a: tensor<4x2xf32>, %b: tensor<4x2xf32>",
    ),
    "negf": function("%0 = arith.negf %a : f16", "%a: f16"),
    "math": function("\n".join(f"%{n} = math.{name} %a : f32" for n, name in enumerate(_MATH_UNARY)), "%a: f32"),
    "absi and fma": function("%0 = math.absi %i : i8\n%1 = math.fma %a, %a, %a : f32", "%i: i8, %a: f32"),
    "casts": function(
        "\n".join(f"%{n} = arith.{name} %a{n} : {source} to {result}" for n, (name, source, result) in enumerate(_CASTS)),
        ", ".join(f"%a{n}: {source}" for n, (_, source, _) in enumerate(_CASTS)),
    ),
    "compare": function(
        """
        %0 = arith.cmpi slt, %a, %a : tensor<8xi32>
        %1 = arith.cmpf une, %x, %x : f32
        """,
        "%a: tensor<8xi32>, %x: f32",
    ),
    "select": function(
        """
        %0 = arith.select %c, %x, %y : f32
        %1 = arith.select %c, %t, %t : tensor<8xf32>
        %2 = arith.select %m, %t, %t : tensor<8xi1>, tensor<8xf32>
        """,
        "%c: i1, %x: f32, %y: f32, %m: tensor<8xi1>, %t: tensor<8xf32>",
    ),
    "constants": function(
        """
        %true = arith.constant true
        %false = arith.constant false
        %c_1_i32 = arith.constant -1 : i32
        %c7_i64 = arith.constant 7 : i64
        %cst = arith.constant 1.000000e-01 : f32
        %cst_0 = arith.constant -0.000000e+00 : f16
        %cst_1 = arith.constant 0xFF80 : bf16
        %cst_2 = arith.constant 0x7FC00000 : f32
        %cst_3 = arith.constant 0x7FF0000000000000 : f64
        %cst_4 = arith.constant 3.14159274e+00 : f32
        %cst_5 = arith.constant dense<0.000000e+00> : tensor<16x16xf32>
        %cst_6 = arith.constant dense<true> : tensor<4xi1>
        %cst_7 = arith.constant dense<-5> : tensor<4xi8>
        """
    ),
    "programs": function(
        """
        %0 = tt.get_program_id x : i32
        %1 = tt.get_num_programs z : i32
        """
    ),
    "barrier": function("gpu.barrier"),
    "checked": function(
        """
        %0 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
        %1 = arith.cmpi slt, %0, %0 : tensor<8xi32>
        "cpu.check_access"(%1, %0) <{message = "load through x", parameters = array<i32: 0>}> : (tensor<8xi1>, tensor<8xi32>) -> ()
        """
    ),
    "prefetched": function(
        """
        "cpu.prefetch"(%p) : (!tt.ptr<f32>) -> ()
        """,
        "%p: !tt.ptr<f32>",
    ),
    "bytes": function(
        """
        %0 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
        %1 = "cpu.dot_bytes"(%0, %0, %0, %0, %0) <{a_most = 15 : i32, a_signed = false, b_signed = true}> : (tensor<8xi32>, tensor<8xi32>, tensor<8xi32>, tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
        """
    ),
    "dependent_launch": function(
        """
        gpu.gdc_wait
        gpu.gdc_launch_dependents
        """
    ),
    "tiles": function(
        """
        %0 = tt.make_range {end = 16 : i32, start = 8 : i32} : tensor<8xi32>
        %1 = tt.splat %x : f32 -> tensor<1xf32>
        %2 = tt.unsplat %1 : tensor<1xf32>
        %3 = tt.expand_dims %0 {axis = 1 : i32} : tensor<8xi32> -> tensor<8x1xi32>
        %4 = tt.broadcast %3 : tensor<8x1xi32> -> tensor<8x4xi32>
        %5 = tt.reshape %4 : tensor<8x4xi32> -> tensor<32xi32>
        %6 = tt.reshape %4 allow_reorder : tensor<8x4xi32> -> tensor<2x16xi32>
        %7 = tt.trans %4 {order = array<i32: 1, 0>} : tensor<8x4xi32> -> tensor<4x8xi32>
        %8 = tt.join %0, %0 : tensor<8xi32> -> tensor<8x2xi32>
        %9:2 = tt.split %8 : tensor<8x2xi32> -> tensor<8xi32>
        %10 = tt.cat %9#0, %9#1 : tensor<8xi32> -> tensor<16xi32>
        """,
        "%x: f32",
    ),
    "memory": function(
        """
        %0 = tt.splat %p : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
        %1 = tt.addptr %0, %i : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
        %2 = tt.load %1 : tensor<8x!tt.ptr<f32>>
        %3 = tt.load %1, %m cacheModifier = cg : tensor<8x!tt.ptr<f32>>
        %4 = tt.load %1, %m, %2 evictionPolicy = evict_last {is_volatile = true} : tensor<8x!tt.ptr<f32>>
        %5 = tt.load %p : !tt.ptr<f32>
        tt.store %1, %4 : tensor<8x!tt.ptr<f32>>
        tt.store %1, %3, %m cacheModifier = wt evictionPolicy = evict_first : tensor<8x!tt.ptr<f32>>
        %6 = tt.atomic_rmw fadd, acq_rel, gpu, %1, %2, %m : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>, tensor<8xi1>) -> tensor<8xf32>
        %7 = tt.atomic_rmw fadd, relaxed, cta, %p, %5 : (!tt.ptr<f32>, f32) -> f32
        """,
        "%p: !tt.ptr<f32>, %i: tensor<8xi32>, %m: tensor<8xi1>",
    ),
    "descriptors": function(
        """
        %0 = tt.make_tensor_descriptor %p, [%m, %n], [%s, %t] : <f16>, <tensor<8x16xf16>>
        %1 = tt.descriptor_load %0[%m, %n] : !tt.tensordesc<tensor<8x16xf16>> -> tensor<8x16xf16>
        %2 = tt.descriptor_load %0[%m, %n] cacheModifier = ca evictionPolicy = evict_first : !tt.tensordesc<tensor<8x16xf16>> -> tensor<8x16xf16>
        tt.descriptor_store %0[%n, %m], %1 : !tt.tensordesc<tensor<8x16xf16>>, tensor<8x16xf16>
        tt.descriptor_reduce add, %0[%m, %m], %2 : !tt.tensordesc<tensor<8x16xf16>>, tensor<8x16xf16>
        %3 = tt.make_tensor_descriptor %p, [%m, %n], [%s, %t] {padding = "nan"} : <f16>, <tensor<1x16xf16>>
        %4 = tt.descriptor_gather %3[%i, %n] : (!tt.tensordesc<tensor<1x16xf16>>, tensor<8xi32>, i32) -> tensor<8x16xf16>
        tt.descriptor_scatter %3[%i, %n], %4 : !tt.tensordesc<tensor<1x16xf16>>, tensor<8xi32>, i32, tensor<8x16xf16>
        """,
        "%p: !tt.ptr<f16>, %m: i32, %n: i32, %s: i64, %t: i64, %i: tensor<8xi32>",
    ),
    "conversions": function(
        """
        %0 = tt.bitcast %x : tensor<8xf32> -> tensor<8xi32>
        %1 = tt.bitcast %p : !tt.ptr<i1> -> !tt.ptr<i8>
        %2 = tt.ptr_to_int %p : !tt.ptr<i1> -> i64
        %3 = tt.int_to_ptr %2 : i64 -> !tt.ptr<f32>
        %4 = tt.fp_to_fp %x : tensor<8xf32> -> tensor<8xf8E4M3FN>
        %5 = tt.fp_to_fp %x, rounding = rtz : tensor<8xf32> -> tensor<8xbf16>
        """,
        "%x: tensor<8xf32>, %p: !tt.ptr<i1>",
    ),
    "tt arithmetic": function(
        """
        %0 = tt.clampf %x, %x, %x : f32
        %1 = tt.clampf %x, %x, %x, propagateNan = all : f32
        %2 = tt.precise_sqrt %x : f32
        %3 = tt.precise_divf %x, %x : f32
        %4 = tt.mulhiui %i, %i : i32
        """,
        "%x: f32, %i: i32",
    ),
    "dot": function(
        """
        %0 = tt.dot %a, %b, %c : tensor<16x32xf16> * tensor<32x8xf16> -> tensor<16x8xf32>
        %1 = tt.dot %a, %b, %0, inputPrecision = tf32 {max_num_imprecise_acc = 32 : i32} : tensor<16x32xf16> * tensor<32x8xf16> -> tensor<16x8xf32>
        """,
        "%a: tensor<16x32xf16>, %b: tensor<32x8xf16>, %c: tensor<16x8xf32>",
    ),
    "reduce": function(_block("reduce", "(tensor<8xf32>) -> f32", "arith.addf", "{axis = 0 : i32}"), "%a: tensor<8xf32>"),
    "scan": function(
        _block("scan", "(tensor<8x4xf32>) -> tensor<8x4xf32>", "arith.mulf", "{axis = 1 : i32, reverse = true}"),
        "%a: tensor<8x4xf32>",
    ),
    "reduce of two": function(
        """
        %0:2 = "tt.reduce"(%a, %i) <{axis = 1 : i32}> ({
        ^bb0(%x: f32, %j: i32, %y: f32, %k: i32):
          %1 = arith.cmpf ogt, %x, %y : f32
          %2 = arith.select %1, %x, %y : f32
          %3 = arith.select %1, %j, %k : i32
          tt.reduce.return %2, %3 : f32, i32
        }) : (tensor<8x4xf32>, tensor<8x4xi32>) -> (tensor<8xf32>, tensor<8xi32>)
        %4 = arith.sitofp %0#1 : tensor<8xi32> to tensor<8xf32>
        """,
        "%a: tensor<8x4xf32>, %i: tensor<8x4xi32>",
    ),
    "within tiles": function(
        """
        %0 = tt.gather %a[%i] {axis = 0 : i32} : (tensor<8x4xf32>, tensor<2x4xi32>) -> tensor<2x4xf32>
        %1 = tt.histogram %j : tensor<8xi32> -> tensor<16xi32>
        %2 = tt.histogram %j, %m : tensor<8xi32> -> tensor<16xi32>
        %3 = tt.extern_elementwise %a, %a {libname = "libdevice", symbol = "__nv_powf"} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
        %4:2 = "tt.map_elementwise"(%j) <{pack = 2 : i32}> ({
        ^bb0(%x: i32, %y: i32):
          tt.map_elementwise.return %y, %x, %x, %x : i32, i32, i32, i32
        }) : (tensor<8xi32>) -> (tensor<8xi32>, tensor<8xi32>)
        %5:2 = "tt.elementwise_inline_asm"(%j, %4#1) <{asm_string = "add.s32 $0, $2, $3; mov.b32 $1, $2;", constraints = "=r,=r,r,r", pure = false}> : (tensor<8xi32>, tensor<8xi32>) -> (tensor<8xi32>, tensor<8xi32>)
        """,
        "%a: tensor<8x4xf32>, %i: tensor<2x4xi32>, %j: tensor<8xi32>, %m: tensor<8xi1>",
    ),
    "compare and swap": function(
        """
        %0 = tt.atomic_cas acq_rel, gpu, %p, %v, %v : (!tt.ptr<i32>, i32, i32) -> i32
        %1 = tt.atomic_cas relaxed, sys, %q, %t, %t : (tensor<8x!tt.ptr<i32>>, tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
        """,
        "%p: !tt.ptr<i32>, %v: i32, %q: tensor<8x!tt.ptr<i32>>, %t: tensor<8xi32>",
    ),
    "messages": function(
        """
        "tt.print"(%v, %t) <{is_signed = array<i32: 1, 0>, prefix = "x: "}> : (i32, tensor<8xi32>) -> ()
        "tt.assert"(%c) <{message = "c"}> : (i1) -> ()
        """,
        "%v: i32, %t: tensor<8xi32>, %c: i1",
    ),
    "for": function(
        """
        scf.for %i = %a to %b step %b  : i32 {
        }
        %0:2 = scf.for %j = %a to %b step %b iter_args(%x = %v, %y = %t) -> (f32, tensor<4xf32>)  : i32 {
          %1 = arith.addf %x, %x : f32
          scf.yield %1, %y : f32, tensor<4xf32>
        } {tt.num_stages = 3 : i32}
        %2 = arith.addf %0#0, %v : f32
        """,
        "%a: i32, %b: i32, %v: f32, %t: tensor<4xf32>",
    ),
    "if": function(
        """
        scf.if %c {
          %0 = arith.addf %v, %v : f32
        }
        %1 = scf.if %c -> (f32) {
          scf.yield %v : f32
        } else {
          %2 = arith.negf %v : f32
          scf.yield %2 : f32
        } {tt.likely = true}
        scf.if %c {
        } else {
          %3 = arith.addf %1, %v : f32
        }
        """,
        "%c: i1, %v: f32",
    ),
    "while": function(
        """
        %0 = scf.while (%x = %v) : (i32) -> i32 {
          %1 = arith.cmpi slt, %x, %n : i32
          scf.condition(%1) %x : i32
        } do {
        ^bb0(%y: i32):
          %2 = arith.addi %y, %n : i32
          scf.yield %2 : i32
        }
        scf.while : () -> () {
          %3 = arith.cmpi slt, %0, %n : i32
          scf.condition(%3)
        } do {
        }
        """,
        "%v: i32, %n: i32",
    ),
    "functions": """\
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @kernel(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32, tt.pointer_range = 32 : i32}, %n: i32) attributes {noinline = false} {
    %0:2 = tt.call @helper(%n) : (i32) -> (i32, i32)
    tt.call @nothing(%p) : (!tt.ptr<f32>) -> ()
    %1 = tt.call @one(%0#1) : (i32) -> i32
    tt.return
  }
  tt.func private @helper(%arg0: i32) -> (i32, i32) attributes {noinline = false} {
    tt.return %arg0, %arg0 : i32, i32
  }
  tt.func private @nothing(%arg0: !tt.ptr<f32>) attributes {noinline = true} {
    tt.return
  }
  tt.func private @one(%arg0: i32) -> i32 attributes {noinline = false} {
    tt.return %arg0 : i32
  }
}
""",
}
