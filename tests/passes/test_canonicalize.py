"""canonicalize: each fold on the smallest IR that shows it, and what must be left alone."""

from __future__ import annotations

import pytest

from kernelpack.passes import canonicalize
from tests.passes.before_after import check, stays

II, FF, BB = "%x: i32, %y: i32", "%x: f32, %y: f32", "%b: i1, %c: i1"
TT = "%x: tensor<8xi32>, %y: tensor<8xi32>"

EXPRESSIONS: dict[str, tuple[str, str, str | None, str]] = {
    # name: (arguments, before, after, type); %r is returned; after is X or B where %r becomes that argument, None where nothing changes
    "constants fold": ("", "%a = arith.constant 3 : i32\n%b = arith.constant 4 : i32\n%r = arith.muli %a, %b : i32", "%r = arith.constant 12 : i32", "i32"),
    "constants wrap": ("", "%a = arith.constant 100 : i8\n%r = arith.addi %a, %a : i8", "%r = arith.constant -56 : i8", "i8"),
    "tensor constants fold": ("", "%a = arith.constant dense<1.5> : tensor<8xf32>\n%r = arith.addf %a, %a : tensor<8xf32>", "%r = arith.constant dense<3.0> : tensor<8xf32>", "tensor<8xf32>"),
    "rounding folds": ("", "%a = arith.constant 0.1 : f32\n%r = arith.truncf %a : f32 to bf16", "%r = arith.constant 0.10009765625 : bf16", "bf16"),
    "functions fold": ("", "%a = arith.constant 1.0 : f32\n%r = math.exp %a : f32", "%r = arith.constant 2.71828175 : f32", "f32"),
    "comparisons fold": ("", "%a = arith.constant 0x7FC00000 : f32\n%r = arith.cmpf une, %a, %a : f32", "%r = arith.constant true", "i1"),
    "extensions fold": ("", "%a = arith.constant true\n%r = arith.extui %a : i1 to i32", "%r = arith.constant 1 : i32", "i32"),
    "bits of a NaN stay": ("", "%a = arith.constant 0x7F800001 : i32\n%r = arith.bitcast %a : i32 to f32", None, "f32"),
    "bits of a number fold": ("", "%a = arith.constant 0x3F800000 : i32\n%r = arith.bitcast %a : i32 to f32", "%r = arith.constant 1.0 : f32", "f32"),
    "constant goes right": (II, "%a = arith.constant 3 : i32\n%r = arith.muli %a, %x : i32", "%a = arith.constant 3 : i32\n%r = arith.muli %x, %a : i32", "i32"),
    "division stays in order": (II, "%a = arith.constant 3 : i32\n%r = arith.divsi %a, %x : i32", None, "i32"),
    **{
        f"{name} neutral": (II, f"%a = arith.constant {number} : i32\n%r = arith.{name} %x, %a : i32", "X", "i32")
        for name, number in (("addi", 0), ("subi", 0), ("muli", 1), ("divsi", 1), ("divui", 1), ("andi", -1), ("ori", 0), ("xori", 0), ("shli", 0), ("shrsi", 0), ("shrui", 0))
    },
    **{
        f"{name} absorbs": (II, f"%a = arith.constant {number} : i32\n%r = arith.{name} %x, %a : i32", f"%r = arith.constant {result} : i32", "i32")
        for name, number, result in (("muli", 0, 0), ("andi", 0, 0), ("ori", -1, -1), ("remsi", 1, 0), ("remui", 1, 0))
    },
    **{f"{name} of itself": (II, f"%r = arith.{name} %x, %x : i32", "X", "i32") for name in ("andi", "ori", "maxsi", "maxui", "minsi", "minui")},
    **{f"{name} of itself is zero": (II, f"%r = arith.{name} %x, %x : i32", "%r = arith.constant 0 : i32", "i32") for name in ("subi", "xori")},
    "additions gather": (II, "%a = arith.constant 3 : i32\n%s = arith.addi %x, %a : i32\n%r = arith.addi %s, %a : i32", "%a = arith.constant 6 : i32\n%r = arith.addi %x, %a : i32", "i32"),
    "subtraction of a constant": (II, "%a = arith.constant 3 : i32\n%s = arith.addi %x, %a : i32\n%r = arith.subi %s, %a : i32", "X", "i32"),
    "x + -0.0": (FF, "%a = arith.constant -0.0 : f32\n%r = arith.addf %x, %a : f32", "X", "f32"),
    "x + 0.0 stays": (FF, "%a = arith.constant 0.0 : f32\n%r = arith.addf %x, %a : f32", None, "f32"),
    "x - 0.0": (FF, "%a = arith.constant 0.0 : f32\n%r = arith.subf %x, %a : f32", "X", "f32"),
    "x - -0.0 stays": (FF, "%a = arith.constant -0.0 : f32\n%r = arith.subf %x, %a : f32", None, "f32"),
    "x * 1.0": (FF, "%a = arith.constant 1.0 : f32\n%r = arith.mulf %x, %a : f32", "X", "f32"),
    "x * 0.0 stays": (FF, "%a = arith.constant 0.0 : f32\n%r = arith.mulf %x, %a : f32", None, "f32"),
    "x - x stays": (FF, "%r = arith.subf %x, %x : f32", None, "f32"),
    "floats do not gather": (FF, "%a = arith.constant 3.0 : f32\n%s = arith.addf %x, %a : f32\n%r = arith.addf %s, %a : f32", None, "f32"),
    "x / 1.0": (FF, "%a = arith.constant 1.0 : f32\n%r = arith.divf %x, %a : f32", "X", "f32"),
    "x / 8.0": (FF, "%a = arith.constant -8.0 : f32\n%r = tt.precise_divf %x, %a : f32", "%a = arith.constant -0.125 : f32\n%r = arith.mulf %x, %a : f32", "f32"),
    "x / 3.0 stays": (FF, "%a = arith.constant 3.0 : f32\n%r = arith.divf %x, %a : f32", None, "f32"),
    "x / huge stays": (FF, "%a = arith.constant 1.7014118346046923e+38 : f32\n%r = arith.divf %x, %a : f32", None, "f32"),
    "x / tiny stays": ("%x: f16", "%a = arith.constant 3.0517578125e-05 : f16\n%r = arith.divf %x, %a : f16", None, "f16"),
    "maximum of itself": (FF, "%r = arith.maximumf %x, %x : f32", "X", "f32"),
    "double negation": (FF, "%s = arith.negf %x : f32\n%r = arith.negf %s : f32", "X", "f32"),
    "absolute value of a negation": (FF, "%s = arith.negf %x : f32\n%r = math.absf %s : f32", "%r = math.absf %x : f32", "f32"),
    "not not": (BB, "%a = arith.constant true\n%s = arith.xori %b, %a : i1\n%r = arith.xori %s, %a : i1", "B", "i1"),
    "not of a comparison": (II, "%a = arith.constant true\n%s = arith.cmpi slt, %x, %y : i32\n%r = arith.xori %s, %a : i1", "%r = arith.cmpi sge, %x, %y : i32", "i1"),
    "not of a float comparison": (FF, "%a = arith.constant true\n%s = arith.cmpf olt, %x, %y : f32\n%r = arith.xori %s, %a : i1", "%r = arith.cmpf uge, %x, %y : f32", "i1"),
    "not of unordered": (FF, "%a = arith.constant true\n%s = arith.cmpf uno, %x, %y : f32\n%r = arith.xori %s, %a : i1", "%r = arith.cmpf ord, %x, %y : f32", "i1"),
    "comparison with itself": (II, "%r = arith.cmpi sle, %x, %x : i32", "%r = arith.constant true", "i1"),
    "strict comparison with itself": (II, "%r = arith.cmpi ult, %x, %x : i32", "%r = arith.constant false", "i1"),
    "float comparison with itself stays": (FF, "%r = arith.cmpf oeq, %x, %x : f32", None, "i1"),
    "float comparison that looks at nothing": (FF, "%r = arith.cmpf true, %x, %y : f32", "%r = arith.constant true", "i1"),
    "compared constant goes right": (II, "%a = arith.constant 3 : i32\n%r = arith.cmpi slt, %a, %x : i32", "%a = arith.constant 3 : i32\n%r = arith.cmpi sgt, %x, %a : i32", "i1"),
    "compared float goes right": (FF, "%a = arith.constant 3.0 : f32\n%r = arith.cmpf uge, %a, %x : f32", "%a = arith.constant 3.0 : f32\n%r = arith.cmpf ule, %x, %a : f32", "i1"),
    "select of true": (II, "%t = arith.constant true\n%r = arith.select %t, %x, %y : i32", "X", "i32"),
    "select of a false tensor": (TT, "%t = arith.constant dense<false> : tensor<8xi1>\n%r = arith.select %t, %y, %x : tensor<8xi1>, tensor<8xi32>", "X", "tensor<8xi32>"),
    "select of the same": (f"{II}, {BB}", "%r = arith.select %b, %x, %x : i32", "X", "i32"),
    "select true, false": (BB, "%t = arith.constant true\n%f = arith.constant false\n%r = arith.select %b, %t, %f : i1", "B", "i1"),
    "select false, true": (BB, "%t = arith.constant true\n%f = arith.constant false\n%r = arith.select %b, %f, %t : i1", "%t = arith.constant true\n%r = arith.xori %b, %t : i1", "i1"),
    "extensions join": ("%x: i8", "%s = arith.extui %x : i8 to i16\n%r = arith.extsi %s : i16 to i32", "%r = arith.extui %x : i8 to i32", "i32"),
    "sign then zero extension stays": ("%x: i8", "%s = arith.extsi %x : i8 to i16\n%r = arith.extui %s : i16 to i32", None, "i32"),
    "truncation of an extension": (II, "%s = arith.extsi %x : i32 to i64\n%r = arith.trunci %s : i64 to i32", "X", "i32"),
    "truncation to less": (II, "%s = arith.extsi %x : i32 to i64\n%r = arith.trunci %s : i64 to i8", "%r = arith.trunci %x : i32 to i8", "i8"),
    "truncation to more": ("%x: i8", "%s = arith.extui %x : i8 to i64\n%r = arith.trunci %s : i64 to i32", "%r = arith.extui %x : i8 to i32", "i32"),
    "float there and back": ("%x: bf16", "%s = arith.extf %x : bf16 to f32\n%r = arith.truncf %s : f32 to bf16", "X", "bf16"),
    "float back and there stays": (FF, "%s = arith.truncf %x : f32 to bf16\n%r = arith.extf %s : bf16 to f32", None, "f32"),
    "bf16 through f16 stays": ("%x: bf16", "%s = tt.fp_to_fp %x : bf16 -> f16\n%r = tt.fp_to_fp %s : f16 -> bf16", None, "bf16"),
    "fp8 there and back stays": ("%x: f8E5M2", "%s = arith.extf %x : f8E5M2 to f32\n%r = arith.truncf %s : f32 to f8E5M2", None, "f8E5M2"),
    "conversion to the same type": (FF, "%r = tt.fp_to_fp %x : f32 -> f32", "X", "f32"),
    "bitcasts join": (FF, "%s = arith.bitcast %x : f32 to i32\n%r = arith.bitcast %s : i32 to f32", "X", "f32"),
    "pointer casts join": ("%x: !tt.ptr<i1>", "%s = tt.bitcast %x : !tt.ptr<i1> -> !tt.ptr<i8>\n%r = tt.bitcast %s : !tt.ptr<i8> -> !tt.ptr<f32>", "%r = tt.bitcast %x : !tt.ptr<i1> -> !tt.ptr<f32>", "!tt.ptr<f32>"),
    "pointer to integer and back": ("%x: !tt.ptr<f32>", "%s = tt.ptr_to_int %x : !tt.ptr<f32> -> i64\n%r = tt.int_to_ptr %s : i64 -> !tt.ptr<f32>", "X", "!tt.ptr<f32>"),
    "pointer through i32 stays": ("%x: !tt.ptr<f32>", "%s = tt.ptr_to_int %x : !tt.ptr<f32> -> i32\n%r = tt.int_to_ptr %s : i32 -> !tt.ptr<f32>", None, "!tt.ptr<f32>"),
    # tiles
    "splat of a constant": ("", "%a = arith.constant 2.0 : f32\n%r = tt.splat %a : f32 -> tensor<8xf32>", "%r = arith.constant dense<2.0> : tensor<8xf32>", "tensor<8xf32>"),
    "sum of splats": (FF, "%s = tt.splat %x : f32 -> tensor<8xf32>\n%t = tt.splat %y : f32 -> tensor<8xf32>\n%r = arith.addf %s, %t : tensor<8xf32>", "%0 = arith.addf %x, %y : f32\n%r = tt.splat %0 : f32 -> tensor<8xf32>", "tensor<8xf32>"),
    "splat and constant": (II, "%a = arith.constant dense<5> : tensor<8xi32>\n%s = tt.splat %x : i32 -> tensor<8xi32>\n%r = arith.cmpi slt, %s, %a : tensor<8xi32>", "%a = arith.constant 5 : i32\n%0 = arith.cmpi slt, %x, %a : i32\n%r = tt.splat %0 : i1 -> tensor<8xi1>", "tensor<8xi1>"),
    "select between splats": (f"{FF}, {BB}", "%s = tt.splat %x : f32 -> tensor<8xf32>\n%t = tt.splat %y : f32 -> tensor<8xf32>\n%r = arith.select %b, %s, %t : tensor<8xf32>", "%0 = arith.select %b, %x, %y : f32\n%r = tt.splat %0 : f32 -> tensor<8xf32>", "tensor<8xf32>"),
    "pointer splat": ("%x: !tt.ptr<f32>, %y: i32", "%s = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>\n%t = tt.splat %y : i32 -> tensor<8xi32>\n%r = tt.addptr %s, %t : tensor<8x!tt.ptr<f32>>, tensor<8xi32>", "%0 = tt.addptr %x, %y : !tt.ptr<f32>, i32\n%r = tt.splat %0 : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>", "tensor<8x!tt.ptr<f32>>"),
    "splat and tile stay": (f"{TT}, %z: tensor<1xi32>", "%c = tt.unsplat %z : tensor<1xi32>\n%s = tt.splat %c : i32 -> tensor<8xi32>\n%r = arith.addi %x, %s : tensor<8xi32>", None, "tensor<8xi32>"),
    "expand_dims of a splat": (FF, "%s = tt.splat %x : f32 -> tensor<8xf32>\n%r = tt.expand_dims %s {axis = 1 : i32} : tensor<8xf32> -> tensor<8x1xf32>", "%r = tt.splat %x : f32 -> tensor<8x1xf32>", "tensor<8x1xf32>"),
    "broadcast of a constant": ("", "%a = arith.constant dense<2> : tensor<8x1xi32>\n%r = tt.broadcast %a : tensor<8x1xi32> -> tensor<8x4xi32>", "%r = arith.constant dense<2> : tensor<8x4xi32>", "tensor<8x4xi32>"),
    "reshape and trans of a splat": (FF, "%s = tt.splat %x : f32 -> tensor<8x4xf32>\n%t = tt.trans %s {order = array<i32: 1, 0>} : tensor<8x4xf32> -> tensor<4x8xf32>\n%r = tt.reshape %t : tensor<4x8xf32> -> tensor<32xf32>", "%r = tt.splat %x : f32 -> tensor<32xf32>", "tensor<32xf32>"),
    "unsplat": (FF, "%s = tt.splat %x : f32 -> tensor<1xf32>\n%r = tt.unsplat %s : tensor<1xf32>", "X", "f32"),
    "broadcast of the same shape": (TT, "%r = tt.broadcast %x : tensor<8xi32> -> tensor<8xi32>", "X", "tensor<8xi32>"),
    "broadcasts join": ("%x: tensor<1x1xi32>", "%s = tt.broadcast %x : tensor<1x1xi32> -> tensor<8x1xi32>\n%r = tt.broadcast %s : tensor<8x1xi32> -> tensor<8x4xi32>", "%r = tt.broadcast %x : tensor<1x1xi32> -> tensor<8x4xi32>", "tensor<8x4xi32>"),
    "reshapes join": (TT, "%s = tt.reshape %x : tensor<8xi32> -> tensor<2x4xi32>\n%r = tt.reshape %s : tensor<2x4xi32> -> tensor<8xi32>", "X", "tensor<8xi32>"),
    "reordering reshape stays": (TT, "%s = tt.reshape %x allow_reorder : tensor<8xi32> -> tensor<2x4xi32>\n%r = tt.reshape %s : tensor<2x4xi32> -> tensor<4x2xi32>", None, "tensor<4x2xi32>"),
    "transpositions join": ("%x: tensor<2x4x8xi32>", "%s = tt.trans %x {order = array<i32: 1, 2, 0>} : tensor<2x4x8xi32> -> tensor<4x8x2xi32>\n%r = tt.trans %s {order = array<i32: 1, 0, 2>} : tensor<4x8x2xi32> -> tensor<8x4x2xi32>", "%r = tt.trans %x {order = array<i32: 2, 1, 0>} : tensor<2x4x8xi32> -> tensor<8x4x2xi32>", "tensor<8x4x2xi32>"),
    "transposition and back": ("%x: tensor<2x4xi32>", "%s = tt.trans %x {order = array<i32: 1, 0>} : tensor<2x4xi32> -> tensor<4x2xi32>\n%r = tt.trans %s {order = array<i32: 1, 0>} : tensor<4x2xi32> -> tensor<2x4xi32>", "X", "tensor<2x4xi32>"),
    "range of one": ("", "%r = tt.make_range {end = 4 : i32, start = 3 : i32} : tensor<1xi32>", "%r = arith.constant dense<3> : tensor<1xi32>", "tensor<1xi32>"),
    "split of a join": (TT, "%s = tt.join %y, %x : tensor<8xi32> -> tensor<8x2xi32>\n%t, %r = tt.split %s : tensor<8x2xi32> -> tensor<8xi32>", "X", "tensor<8xi32>"),
    # memory
    "load with a true mask": ("%p: !tt.ptr<f32>, %x: f32", "%t = arith.constant true\n%r = tt.load %p, %t, %x cacheModifier = cg : !tt.ptr<f32>", "%r = tt.load %p cacheModifier = cg : !tt.ptr<f32>", "f32"),
    "load with a false mask": ("%p: !tt.ptr<f32>, %x: f32", "%t = arith.constant false\n%r = tt.load %p, %t, %x : !tt.ptr<f32>", "X", "f32"),
    "load with a false mask and nothing else": ("%p: !tt.ptr<f32>", "%t = arith.constant false\n%r = tt.load %p, %t : !tt.ptr<f32>", "%r = arith.constant 0.0 : f32", "f32"),
    "pointer that a false mask does not load stays": ("%p: !tt.ptr<!tt.ptr<f32>>", "%t = arith.constant false\n%r = tt.load %p, %t : !tt.ptr<!tt.ptr<f32>>", None, "!tt.ptr<f32>"),
    "atomic with a true mask": ("%p: !tt.ptr<f32>, %x: f32", "%t = arith.constant true\n%r = tt.atomic_rmw fadd, relaxed, cta, %p, %x, %t : (!tt.ptr<f32>, f32, i1) -> f32", "%r = tt.atomic_rmw fadd, relaxed, cta, %p, %x : (!tt.ptr<f32>, f32) -> f32", "f32"),
    "atomic with a false mask": ("%p: !tt.ptr<f32>, %x: f32", "%t = arith.constant false\n%r = tt.atomic_rmw fadd, relaxed, cta, %p, %x, %t : (!tt.ptr<f32>, f32, i1) -> f32", "%r = arith.constant 0.0 : f32", "f32"),
    "offsets gather": ("%x: !tt.ptr<f32>", "%a = arith.constant 3 : i32\n%b = arith.constant 4 : i64\n%s = tt.addptr %x, %a : !tt.ptr<f32>, i32\n%r = tt.addptr %s, %b : !tt.ptr<f32>, i64", "%a = arith.constant 7 : i64\n%r = tt.addptr %x, %a : !tt.ptr<f32>, i64", "!tt.ptr<f32>"),
    "offsets that would overflow stay": ("%x: !tt.ptr<f32>", "%a = arith.constant 2147483647 : i32\n%s = tt.addptr %x, %a : !tt.ptr<f32>, i32\n%r = tt.addptr %s, %a : !tt.ptr<f32>, i32", None, "!tt.ptr<f32>"),
    "offset of nothing": ("%x: !tt.ptr<f32>", "%a = arith.constant 0 : i32\n%r = tt.addptr %x, %a : !tt.ptr<f32>, i32", "X", "!tt.ptr<f32>"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression(name: str) -> None:
    arguments, before, after, kind = EXPRESSIONS[name]
    returned = f"\ntt.return %r : {kind}"
    if after is None:
        stays(canonicalize, arguments, before + returned)
    elif after in ("X", "B"):
        check(canonicalize, arguments, before + returned, returned.replace("%r", "%" + after.lower()))
    else:
        check(canonicalize, arguments, before + returned, after + returned)


# ---- whole statements ----


def test_stores_with_known_masks() -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<f32>, %x: f32",
        """
        %t = arith.constant true
        %f = arith.constant false
        tt.store %p, %x, %t cacheModifier = wt : !tt.ptr<f32>
        tt.store %p, %x, %f : !tt.ptr<f32>
        """,
        "tt.store %p, %x cacheModifier = wt : !tt.ptr<f32>",
    )


def test_dead_code_goes_volatile_loads_stay() -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<f32>, %x: i32, %c: i1",
        """
        %a = arith.addi %x, %x : i32
        %b = arith.muli %a, %x : i32
        %v = tt.load %p : !tt.ptr<f32>
        %w = tt.load %p {is_volatile = true} : !tt.ptr<f32>
        scf.if %c {
          %u = tt.load %p : !tt.ptr<f32>
        }
        """,
        "%w = tt.load %p {is_volatile = true} : !tt.ptr<f32>",
    )


@pytest.mark.parametrize(("known", "value"), [("true", "%x"), ("false", "%y")])
def test_if_with_known_condition(known: str, value: str) -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<i32>, %x: i32, %y: i32",
        f"""
        %c = arith.constant {known}
        %r = scf.if %c -> (i32) {{
          tt.store %p, %x : !tt.ptr<i32>
          scf.yield %x : i32
        }} else {{
          tt.store %p, %y : !tt.ptr<i32>
          scf.yield %y : i32
        }}
        tt.return %r : i32
        """,
        f"""
        tt.store %p, {value} : !tt.ptr<i32>
        tt.return {value} : i32
        """,
    )


def test_if_with_false_condition_and_no_else() -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<i32>, %x: i32",
        """
        %c = arith.constant false
        scf.if %c {
          tt.store %p, %x : !tt.ptr<i32>
        }
        """,
        "",
    )


def test_condition_is_known_in_its_branches() -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<i32>, %x: i32, %y: i32, %c: i1",
        """
        scf.if %c {
          %a = arith.select %c, %x, %y : i32
          tt.store %p, %a : !tt.ptr<i32>
        } else {
          scf.if %c {
            tt.store %p, %x : !tt.ptr<i32>
          }
          tt.store %p, %y, %c : !tt.ptr<i32>
        }
        """,
        """
        scf.if %c {
          tt.store %p, %x : !tt.ptr<i32>
        }
        """,
    )


def test_results_that_both_branches_agree_on() -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<i32>, %x: i32, %t: tensor<4xi32>, %c: i1",
        """
        %a:2 = scf.if %c -> (i32, tensor<4xi32>) {
          tt.store %p, %x : !tt.ptr<i32>
          scf.yield %x, %t : i32, tensor<4xi32>
        } else {
          %u = arith.addi %t, %t : tensor<4xi32>
          scf.yield %x, %u : i32, tensor<4xi32>
        }
        tt.return %a#0, %a#1 : i32, tensor<4xi32>
        """,
        """
        %a:2 = scf.if %c -> (i32, tensor<4xi32>) {
          tt.store %p, %x : !tt.ptr<i32>
          scf.yield %x, %t : i32, tensor<4xi32>
        } else {
          %u = arith.addi %t, %t : tensor<4xi32>
          scf.yield %x, %u : i32, tensor<4xi32>
        }
        tt.return %x, %a#1 : i32, tensor<4xi32>
        """,
    )


def test_choice_between_scalars_is_a_select() -> None:
    check(
        canonicalize,
        "%x: i32, %y: i32, %c: i1",
        """
        %a = scf.if %c -> (i32) {
          scf.yield %x : i32
        } else {
          scf.yield %y : i32
        }
        tt.return %a : i32
        """,
        """
        %a = arith.select %c, %x, %y : i32
        tt.return %a : i32
        """,
    )


def test_choice_between_tiles_stays_a_branch() -> None:
    stays(
        canonicalize,
        "%x: tensor<4xi32>, %y: tensor<4xi32>, %c: i1",
        """
        %a = scf.if %c -> (tensor<4xi32>) {
          scf.yield %x : tensor<4xi32>
        } else {
          scf.yield %y : tensor<4xi32>
        }
        tt.return %a : tensor<4xi32>
        """,
    )


_LOOP = """
%lo = arith.constant {lo} : i32
%hi = arith.constant {hi} : i32
%st = arith.constant {step} : i32
%r = scf.for %i = %lo to %hi step %st iter_args(%a = %x) -> (i32)  : i32 {{
  %b = arith.muli %a, %i : i32
  tt.store %p, %b : !tt.ptr<i32>
  scf.yield %b : i32
}}
tt.return %r : i32
"""


@pytest.mark.parametrize(("lo", "hi", "step"), [(0, 0, 1), (5, 2, 1), (-1, -2, 7)])
def test_loop_that_never_runs(lo: int, hi: int, step: int) -> None:
    check(canonicalize, "%p: !tt.ptr<i32>, %x: i32", _LOOP.format(lo=lo, hi=hi, step=step), "tt.return %x : i32")


@pytest.mark.parametrize(("lo", "hi", "step"), [(3, 4, 1), (3, 7, 4), (3, 5, 100)])
def test_loop_that_runs_once(lo: int, hi: int, step: int) -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<i32>, %x: i32",
        _LOOP.format(lo=lo, hi=hi, step=step),
        """
        %c3 = arith.constant 3 : i32
        %b = arith.muli %x, %c3 : i32
        tt.store %p, %b : !tt.ptr<i32>
        tt.return %b : i32
        """,
    )


def test_loop_that_runs_twice_stays() -> None:
    stays(canonicalize, "%p: !tt.ptr<i32>, %x: i32", _LOOP.format(lo=3, hi=5, step=1))


def test_values_that_a_loop_only_passes_on() -> None:
    check(
        canonicalize,
        "%n: i32, %x: i32, %y: i32, %z: i32",
        """
        %r:3 = scf.for %i = %n to %n step %n iter_args(%a = %x, %b = %y, %c = %z) -> (i32, i32, i32)  : i32 {
          %s = arith.addi %a, %b : i32
          scf.yield %a, %s, %z : i32, i32, i32
        }
        tt.return %r#0, %r#1, %r#2 : i32, i32, i32
        """,
        """
        %r = scf.for %i = %n to %n step %n iter_args(%b = %y) -> (i32)  : i32 {
          %s = arith.addi %x, %b : i32
          scf.yield %s : i32
        }
        tt.return %x, %r, %z : i32, i32, i32
        """,
    )


def test_values_that_a_loop_swaps_stay() -> None:
    stays(
        canonicalize,
        "%n: i32, %x: i32, %y: i32",
        """
        %r:2 = scf.for %i = %n to %n step %n iter_args(%a = %x, %b = %y) -> (i32, i32)  : i32 {
          scf.yield %b, %a : i32, i32
        }
        tt.return %r#0, %r#1 : i32, i32
        """,
    )


def test_while_that_never_goes_on() -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<i32>, %x: i32",
        """
        %r = scf.while (%a = %x) : (i32) -> i32 {
          %f = arith.constant false
          tt.store %p, %a : !tt.ptr<i32>
          scf.condition(%f) %a : i32
        } do {
        ^bb0(%b: i32):
          scf.yield %b : i32
        }
        tt.return %r : i32
        """,
        """
        tt.store %p, %x : !tt.ptr<i32>
        tt.return %x : i32
        """,
    )


def test_promises_stay_with_values() -> None:
    check(
        canonicalize,
        "%x: i32, %y: i32",
        """
        %a = arith.constant 16 : i32
        %b = arith.muli %a, %x {tt.divisibility = array<i32: 16>} : i32
        %s = tt.splat %y : i32 -> tensor<8xi32>
        %t = arith.muli %s, %s {tt.constancy = array<i32: 8>} : tensor<8xi32>
        tt.return %b, %t : i32, tensor<8xi32>
        """,
        """
        %a = arith.constant 16 : i32
        %b = arith.muli %x, %a {tt.divisibility = array<i32: 16>} : i32
        %0 = arith.muli %y, %y : i32
        %t = tt.splat %0 {tt.constancy = array<i32: 8>} : i32 -> tensor<8xi32>
        tt.return %b, %t : i32, tensor<8xi32>
        """,
    )


def test_blocks_are_loaded_and_stored_without_axes_of_one_element() -> None:
    arguments = "%p: !tt.ptr<f16>, %n: i32, %s: i64"
    check(
        canonicalize,
        arguments,
        """
        %d = tt.make_tensor_descriptor %p, [%n, %n, %n], [%s, %s, %s] : <f16>, <tensor<1x4x8xf16>>
        %x = tt.descriptor_load %d[%n, %n, %n] : !tt.tensordesc<tensor<1x4x8xf16>> -> tensor<1x4x8xf16>
        %y = tt.reshape %x : tensor<1x4x8xf16> -> tensor<4x8xf16>
        %z = arith.addf %y, %y : tensor<4x8xf16>
        %w = tt.reshape %z : tensor<4x8xf16> -> tensor<1x4x8xf16>
        tt.descriptor_store %d[%n, %n, %n], %w : !tt.tensordesc<tensor<1x4x8xf16>>, tensor<1x4x8xf16>
        """,
        """
        %d = tt.make_tensor_descriptor %p, [%n, %n, %n], [%s, %s, %s] : <f16>, <tensor<1x4x8xf16>>
        %y = tt.descriptor_load %d[%n, %n, %n] : !tt.tensordesc<tensor<1x4x8xf16>> -> tensor<4x8xf16>
        %z = arith.addf %y, %y : tensor<4x8xf16>
        tt.descriptor_store %d[%n, %n, %n], %z : !tt.tensordesc<tensor<1x4x8xf16>>, tensor<4x8xf16>
        """,
    )
    stays(
        canonicalize,
        arguments,
        """
        %d = tt.make_tensor_descriptor %p, [%n, %n], [%s, %s] : <f16>, <tensor<1x8xf16>>
        %x = tt.descriptor_load %d[%n, %n] : !tt.tensordesc<tensor<1x8xf16>> -> tensor<1x8xf16>
        %y = tt.reshape %x : tensor<1x8xf16> -> tensor<8xf16>
        %z = arith.addf %x, %x : tensor<1x8xf16>
        tt.return %y, %z : tensor<8xf16>, tensor<1x8xf16>
        """,
    )


# ---- branches that do the same ----

_CHOICE = """
    %r = tt.make_range {{end = 32 : i32, start = 0 : i32}} : tensor<32xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
    %qs = tt.splat %q : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
    %a = tt.addptr %ps, %r : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
    %b = tt.addptr %qs, %r : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
    %x = scf.if %c -> (tensor<32xf32>) {{
      %u = tt.load %a : tensor<32x!tt.ptr<f32>>
      %v = math.absf %u : tensor<32xf32>
      scf.yield %v : tensor<32xf32>
    }} else {{
      %s = tt.load %b{cache} : tensor<32x!tt.ptr<f32>>
      %t = {other} %s : tensor<32xf32>
      scf.yield %t : tensor<32xf32>
    }}
    tt.store %a, %x : tensor<32x!tt.ptr<f32>>
"""


def test_loads_from_one_tensor_or_another_are_one_load_of_what_is_chosen() -> None:
    check(
        canonicalize,
        "%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %c: i1",
        _CHOICE.format(other="math.absf", cache=""),
        """
        %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
        %ps = tt.splat %p : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
        %a = tt.addptr %ps, %r : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
        %0 = arith.select %c, %p, %q : !tt.ptr<f32>
        %1 = tt.splat %0 : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
        %2 = tt.addptr %1, %r : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
        %u = tt.load %2 : tensor<32x!tt.ptr<f32>>
        %v = math.absf %u : tensor<32xf32>
        tt.store %a, %v : tensor<32x!tt.ptr<f32>>
        """,
    )


@pytest.mark.parametrize(("other", "cache"), [("math.ceil", ""), ("math.absf", " evictionPolicy = evict_last")])
def test_branches_that_do_something_else_stay(other: str, cache: str) -> None:
    stays(canonicalize, "%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %c: i1", _CHOICE.format(other=other, cache=cache))


def test_tiles_of_different_origin_are_not_chosen() -> None:
    stays(
        canonicalize,
        "%a: tensor<32x!tt.ptr<f32>>, %b: tensor<32x!tt.ptr<f32>>, %c: i1",
        """
        %x = scf.if %c -> (tensor<32xf32>) {
          %u = tt.load %a : tensor<32x!tt.ptr<f32>>
          scf.yield %u : tensor<32xf32>
        } else {
          %s = tt.load %b : tensor<32x!tt.ptr<f32>>
          scf.yield %s : tensor<32xf32>
        }
        tt.store %a, %x : tensor<32x!tt.ptr<f32>>
        """,
    )
