"""The verifier: every rule has IR that breaks it, and the message names the operation and what is wrong."""

from __future__ import annotations

import pytest

from kernelpack.errors import SourceLocation, VerifyError
from kernelpack.ir.core import Block, Builder, Location, Operation, Region, module
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import F32, I32, FunctionType
from kernelpack.ir.verify import verify
from tests.ir.examples import function, parse

_F, _I, _B = "%f: f32", "%i: i32", "%b: i1"
_T, _P, _PT = "%t: tensor<8x4xf32>", "%p: !tt.ptr<f32>", "%pt: tensor<8x!tt.ptr<f32>>"
_COMBINE = """({
^bb0(%x: f32, %y: f32):
  tt.reduce.return %x : f32
})"""


def _reduce(
    region: str = _COMBINE, attributes: str = "axis = 0 : i32", signature: str = "(tensor<8x4xf32>) -> tensor<4xf32>"
) -> str:
    return f'%0 = "tt.reduce"(%t) <{{{attributes}}}> {region} : {signature}'


REJECTED: dict[str, tuple[str, str, str]] = {
    # name: (arguments, body, part of the message)
    "too few operands": (_I, '%0 = "arith.addi"(%i) : (i32) -> i32', "takes 2 operands, has 1"),
    "too many operands": (_P, '%0 = "tt.load"(%p, %p, %p, %p) : (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<f32>) -> f32', "takes 1 to 3"),
    "wrong number of results": (_I, '%0:2 = "arith.addi"(%i, %i) : (i32, i32) -> (i32, i32)', "gives 1 results, has 2"),
    "wrong number of regions": (_I, '%0 = "arith.addi"(%i, %i) ({\n^bb0:\ntt.return\n}) : (i32, i32) -> i32', "takes 0 regions"),
    "operand constraint": (_F, "%0 = arith.addi %f, %f : f32", "lhs must be int, is f32"),
    "result constraint": (_F, "%0 = arith.fptosi %f : f32 to f64", "the result must be int, is f64"),
    "same type": ("%i: i32, %j: i64", '%0 = "arith.addi"(%i, %j) : (i32, i64) -> i32', "must have one type"),
    "same shape": ("%i: tensor<4xi32>", '%0 = "arith.sitofp"(%i) : (tensor<4xi32>) -> tensor<8xf32>', "must have one shape"),
    "inferred result": (_F, '%0 = "arith.addf"(%f, %f) : (f32, f32) -> f64', "must have one type"),
    "extents": ("%t: tensor<3xf32>", "%0 = arith.negf %t : tensor<3xf32>", "must be powers of two"),
    "argument extents": ("%t: tensor<3xf32>", "", "must be powers of two"),
    "missing attribute": (_I, '%0 = "arith.cmpi"(%i, %i) : (i32, i32) -> i1', "attribute predicate is missing"),
    "attribute of wrong kind": ("", '%0 = "tt.get_program_id"() <{axis = "w"}> : () -> i32', "axis = 'w' is not"),
    "attribute not an int": (_T, _reduce(attributes='axis = "x"'), "axis = 'x' is not i32"),
    "attribute not a bool": (_T, '%0 = "tt.reshape"(%t) <{allow_reorder = 1 : i32}> : (tensor<8x4xf32>) -> tensor<32xf32>', "is not bool"),
    "attribute not a string": ("", '"tt.call"() <{callee = 3 : i32}> : () -> ()', "is not str"),
    "attribute not ints": (_T, '%0 = "tt.trans"(%t) <{order = "10"}> : (tensor<8x4xf32>) -> tensor<4x8xf32>', "is not ints"),
    "unknown attribute": (_P, "%0 = tt.load %p {volatile = true} : !tt.ptr<f32>", "has no attribute volatile (known: cache, evict, is_volatile)"),
    "code after a terminator": (_I, '"tt.return"() : () -> ()\n%0 = arith.addi %i, %i : i32', "a terminator stands before the end"),
    "use outside its region": (
        f"{_B}, {_I}",
        "scf.if %b {\n%0 = arith.addi %i, %i : i32\n}\n%1 = arith.addi %0, %i : i32",
        "operand 0 is used before it is defined, or outside its region",
    ),
    # arith
    "comparison of two types": ("%i: i32, %j: i64", '%0 = "arith.cmpi"(%i, %j) <{predicate = "eq"}> : (i32, i64) -> i1', "operands differ in type"),
    "comparison gives i1": (_I, '%0 = "arith.cmpi"(%i, %i) <{predicate = "eq"}> : (i32, i32) -> i32', "gives i1, the result has type i32"),
    "extension to narrower": (_I, "%0 = arith.extsi %i : i32 to i8", "cannot take i32 to i8"),
    "truncation to wider": (_I, "%0 = arith.trunci %i : i32 to i64", "cannot take i32 to i64"),
    "bitcast of another width": (_I, "%0 = arith.bitcast %i : i32 to f64", "widths differ"),
    "select of two types": (f"{_B}, {_I}, {_F}", '%0 = "arith.select"(%b, %i, %f) : (i1, i32, f32) -> i32', "differ in type"),
    "select with another shape": ("%m: tensor<4xi1>, %t: tensor<8xf32>", '%0 = "arith.select"(%m, %t, %t) : (tensor<4xi1>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>', "condition and values differ in shape"),
    "select on an integer": (f"{_I}, {_F}", '%0 = "arith.select"(%i, %f, %f) : (i32, f32, f32) -> f32', "condition must be bool"),
    # scf
    "bounds of two types": ("%i: i32, %j: i64", '"scf.for"(%i, %i, %j) ({\n^bb0(%k: i32):\nscf.yield\n}) : (i32, i32, i64) -> ()', "must be of one type"),
    "float bounds": (_F, '"scf.for"(%f, %f, %f) ({\n^bb0(%k: f32):\nscf.yield\n}) : (f32, f32, f32) -> ()', "lower must be int_scalar"),
    "body without induction variable": (_I, '"scf.for"(%i, %i, %i) ({\n^bb0:\nscf.yield\n}) : (i32, i32, i32) -> ()', "must take the induction variable"),
    "loop results": (f"{_I}, {_F}", '%0 = "scf.for"(%i, %i, %i, %f) ({\n^bb0(%k: i32, %x: f32):\nscf.yield %x : f32\n}) : (i32, i32, i32, f32) -> f64', "results and carried values differ"),
    "loop yields another type": (f"{_I}, {_F}", '%0 = "scf.for"(%i, %i, %i, %f) ({\n^bb0(%k: i32, %x: f32):\nscf.yield %k : i32\n}) : (i32, i32, i32, f32) -> f32', "yielded and carried values differ"),
    "loop without yield": (_I, '"scf.for"(%i, %i, %i) ({\n^bb0(%k: i32):\ntt.return\n}) : (i32, i32, i32) -> ()', "must end in scf.yield"),
    "if on a tensor": ("%m: tensor<4xi1>", '"scf.if"(%m) ({\nscf.yield\n}, {\nscf.yield\n}) : (tensor<4xi1>) -> ()', "the condition must be i1"),
    "if without else": (f"{_B}, {_F}", '%0 = "scf.if"(%b) ({\nscf.yield %f : f32\n}, {\n}) : (i1) -> f32', "an if with results needs an else"),
    "branch takes arguments": (_B, '"scf.if"(%b) ({\n^bb0(%x: f32):\nscf.yield\n}, {\nscf.yield\n}) : (i1) -> ()', "branches take no arguments"),
    "branch yields another type": (f"{_B}, {_F}", '%0 = "scf.if"(%b) ({\nscf.yield %f : f32\n}, {\nscf.yield\n}) : (i1) -> f32', "a branch must yield the types of the results"),
    "branch without yield": (_B, '"scf.if"(%b) ({\ntt.return\n}, {\nscf.yield\n}) : (i1) -> ()', "region 0 must end in scf.yield"),
    "while without condition": ("", '"scf.while"() ({\nscf.yield\n}, {\nscf.yield\n}) : () -> ()', "region 0 must end in scf.condition"),
    "while without yield": (_B, '"scf.while"() ({\nscf.condition(%b)\n}, {\ntt.return\n}) : () -> ()', "region 1 must end in scf.yield"),
    "while's condition takes the initial values": (f"{_B}, {_F}", '"scf.while"(%f) ({\nscf.condition(%b)\n}, {\nscf.yield %f : f32\n}) : (f32) -> ()', "must take the initial values"),
    "while passes on": (f"{_B}, {_F}", '%0 = "scf.while"() ({\nscf.condition(%b) %f : f32\n}, {\nscf.yield\n}) : () -> f32', "must pass on what the body takes"),
    "while's body yields": (f"{_B}, {_F}", '"scf.while"() ({\nscf.condition(%b)\n}, {\nscf.yield %f : f32\n}) : () -> ()', "must yield what the condition takes"),
    "while on a tensor": ("%m: tensor<4xi1>", '"scf.while"() ({\nscf.condition(%m)\n}, {\nscf.yield\n}) : () -> ()', "the condition must be i1"),
    # tt
    "program id": ("", "%0 = tt.get_program_id x : i64", "gives i32, the result has type i64"),
    "range size": ("", "%0 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<16xi32>", "gives tensor<8xi32>"),
    "empty range": ("", "%0 = tt.make_range {end = 0 : i32, start = 0 : i32} : tensor<1xi32>", "the range is empty"),
    "splat of another type": (_F, "%0 = tt.splat %f : f32 -> tensor<8xf64>", "element types differ: f32, f64"),
    "splat of a tensor": (_T, "%0 = tt.splat %t : tensor<8x4xf32> -> tensor<8xf32>", "src must be scalar"),
    "splat to a scalar": (_F, "%0 = tt.splat %f : f32 -> f32", "the result must be tensor"),
    "expand_dims axis": (_T, "%0 = tt.expand_dims %t {axis = 3 : i32} : tensor<8x4xf32> -> tensor<8x4x1xf32>", "axis 3 is out of range"),
    "expand_dims shape": (_T, "%0 = tt.expand_dims %t {axis = 0 : i32} : tensor<8x4xf32> -> tensor<8x4x1xf32>", "gives tensor<1x8x4xf32>"),
    "broadcast shape": (_T, "%0 = tt.broadcast %t : tensor<8x4xf32> -> tensor<8x8xf32>", "cannot broadcast"),
    "broadcast rank": (_T, "%0 = tt.broadcast %t : tensor<8x4xf32> -> tensor<2x8x4xf32>", "cannot broadcast"),
    "broadcast type": (_T, "%0 = tt.broadcast %t : tensor<8x4xf32> -> tensor<8x4xf16>", "element types differ"),
    "reshape size": (_T, "%0 = tt.reshape %t : tensor<8x4xf32> -> tensor<16xf32>", "the number of elements changes"),
    "reshape type": (_T, "%0 = tt.reshape %t : tensor<8x4xf32> -> tensor<32xi32>", "element types differ"),
    "trans order": (_T, "%0 = tt.trans %t {order = array<i32: 0, 0>} : tensor<8x4xf32> -> tensor<8x8xf32>", "is not a permutation"),
    "trans shape": (_T, "%0 = tt.trans %t {order = array<i32: 1, 0>} : tensor<8x4xf32> -> tensor<8x4xf32>", "gives tensor<4x8xf32>"),
    "join of two types": ("%t: tensor<8xf32>, %u: tensor<8xi32>", '%0 = "tt.join"(%t, %u) : (tensor<8xf32>, tensor<8xi32>) -> tensor<8x2xf32>', "operands differ in type"),
    "split of four": (_T, '%0:2 = "tt.split"(%t) : (tensor<8x4xf32>) -> (tensor<8xf32>, tensor<8xf32>)', "the last axis must have 2"),
    "cat shape": (_T, "%0 = tt.cat %t, %t : tensor<8x4xf32> -> tensor<8x8xf32>", "do not fit along the first axis"),
    "addptr shape": (f"{_PT}, {_I}", '%0 = "tt.addptr"(%pt, %i) : (tensor<8x!tt.ptr<f32>>, i32) -> tensor<8x!tt.ptr<f32>>', "pointer and offset differ in shape"),
    "addptr result": (f"{_P}, {_I}", '%0 = "tt.addptr"(%p, %i) : (!tt.ptr<f32>, i32) -> !tt.ptr<i32>', "gives !tt.ptr<f32>"),
    "load through a number": (_F, '%0 = "tt.load"(%f) : (f32) -> f32', "ptr must be pointer"),
    "load's result": (_P, '%0 = "tt.load"(%p) : (!tt.ptr<f32>) -> f16', "gives f32"),
    "load's mask": (f"{_PT}, {_B}", '%0 = "tt.load"(%pt, %b) : (tensor<8x!tt.ptr<f32>>, i1) -> tensor<8xf32>', "mask of type i1 does not fit"),
    "load's other": (f"{_P}, {_B}, {_I}", '%0 = "tt.load"(%p, %b, %i) : (!tt.ptr<f32>, i1, i32) -> f32', "value of type i32 does not fit"),
    "store's value": (f"{_P}, {_I}", '"tt.store"(%p, %i) : (!tt.ptr<f32>, i32) -> ()', "value of type i32 does not fit"),
    "store's mask": (f"{_P}, {_F}, {_I}", '"tt.store"(%p, %f, %i) : (!tt.ptr<f32>, f32, i32) -> ()', "mask must be bool"),
    "atomic's value": (f"{_P}, {_I}", '%0 = "tt.atomic_rmw"(%p, %i) <{atomic_rmw_op = "add"}> : (!tt.ptr<f32>, i32) -> i32', "value of type i32 does not fit"),
    "atomic add of floats": (f"{_P}, {_F}", '%0 = "tt.atomic_rmw"(%p, %f) <{atomic_rmw_op = "add"}> : (!tt.ptr<f32>, f32) -> f32', "add does not apply to f32"),
    "pointer to number": (_P, "%0 = tt.bitcast %p : !tt.ptr<f32> -> i64", "tt.ptr_to_int"),
    "tt.bitcast width": (_F, "%0 = tt.bitcast %f : f32 -> i64", "widths differ"),
    "int_to_ptr": (_I, "%0 = tt.int_to_ptr %i : i32 -> i32", "the result must be pointer"),
    "ptr_to_int": (_P, "%0 = tt.ptr_to_int %p : !tt.ptr<f32> -> f32", "the result must be int"),
    "dot's inputs": ("%a: tensor<16x16xf16>, %c: tensor<16x16xf32>", '%0 = "tt.dot"(%a, %c, %c) : (tensor<16x16xf16>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>', "a is f16, b is f32"),
    "dot's accumulator": ("%a: tensor<16x16xf16>, %c: tensor<16x16xi32>", '%0 = "tt.dot"(%a, %a, %c) : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xi32>) -> tensor<16x16xi32>', "c is i32"),
    "dot's rank": ("%a: tensor<16x16xf16>, %c: tensor<16xf16>", '%0 = "tt.dot"(%a, %a, %c) : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16xf16>) -> tensor<16xf16>', "differ in rank"),
    "dot's shapes": ("%a: tensor<16x32xf16>, %c: tensor<16x16xf16>", '%0 = "tt.dot"(%a, %a, %c) : (tensor<16x32xf16>, tensor<16x32xf16>, tensor<16x16xf16>) -> tensor<16x16xf16>', "shapes do not fit"),
    "reduction of nothing": ("", '"tt.reduce"() <{axis = 0 : i32}> ({\n^bb0:\n"tt.reduce.return"() : () -> ()\n}) : () -> ()', "takes at least one operand"),
    "reduction's axis": (_T, _reduce(attributes="axis = 2 : i32"), "axis 2 is out of range"),
    "reduction's result": (_T, _reduce(signature="(tensor<8x4xf32>) -> tensor<8xf32>"), "gives tensor<4xf32>"),
    "reduction's shapes": ("%t: tensor<8xf32>, %u: tensor<4xf32>", '%0:2 = "tt.reduce"(%t, %u) <{axis = 0 : i32}> ({\n^bb0(%x: f32, %y: f32, %z: f32, %w: f32):\ntt.reduce.return %x, %y : f32, f32\n}) : (tensor<8xf32>, tensor<4xf32>) -> (f32, f32)', "operands differ in shape"),
    "combine's arguments": (_T, _reduce(region="({\n^bb0(%x: f32):\ntt.reduce.return %x : f32\n})"), "must take two elements of each operand"),
    "combine's terminator": (_T, _reduce(region="({\n^bb0(%x: f32, %y: f32):\ntt.scan.return %x : f32\n})"), "ends in tt.reduce.return"),
    "combine's value": (f"{_T}, {_I}", _reduce(region="({\n^bb0(%x: f32, %y: f32):\ntt.reduce.return %i : i32\n})"), "must give one element of each operand"),
    "call of nothing": ("", "tt.call @nowhere() : () -> ()", "no function is called nowhere"),
    "call with wrong types": (_I, "tt.call @kernel() : () -> ()", "called as () -> (), the function is (i32) -> ()"),
    "return of the wrong type": (_I, "tt.return %i : i32", "returns (i32), its type says (i32) -> ()"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_rejects(name: str) -> None:
    arguments, body, message = REJECTED[name]
    with pytest.raises(VerifyError) as caught:
        verify(parse_module(function(body, arguments)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("i8", 200),
        ("i8", 1.0),
        ("i1", 1),
        ("i32", True),
        ("f32", 1),
        ("f32", 0.1),
        ("bf16", 1.00390625),
        ("f16", 1e6),
        ("i32", float("nan")),
        ("f32", "1"),
    ],
)
def test_constants_have_one_form(kind: str, value: object) -> None:
    built = parse_module(function(f"%0 = arith.constant 0{'' if kind.startswith('i') else '.0'} : {kind}"))
    built.body.operations[0].body.operations[0].attributes["value"] = value
    with pytest.raises(VerifyError, match=r"must be written|does not fit|is not a number"):
        verify(built)


def test_constants_are_brought_into_their_form() -> None:
    block = Block()
    build = Builder(block)
    made = [build.constant(value, kind) for value, kind in ((0.1, F32), (1, F32), ((1 << 32) - 1, I32), (True, I32))]
    assert [value.defining_op.attributes["value"] for value in made if value.defining_op] == [0.10000000149011612, 1.0, -1, 1]
    for op in block.operations:
        verify(op)


def _function(block: Block, **attributes: object) -> Operation:
    kind = FunctionType(tuple(argument.type for argument in block.arguments), ())
    named = {"sym_name": "f", "function_type": kind, **attributes}
    return Operation("tt.func", attributes=named, regions=[Region([block])])


def _returning(block: Block) -> Block:
    block.append(Operation("tt.return"))
    return block


def _rejects(op: Operation, message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(op)
    assert message in str(caught.value)


def test_rejects_unknown_operation() -> None:
    _rejects(Operation("arith.nope"), "unknown operation 'arith.nope'")


def test_rejects_use_of_a_value_from_another_function() -> None:
    first = _function(_returning(Block([I32])))
    outside = first.body.arguments[0]
    block = Block()
    block.append(Operation("arith.addi", [outside, outside], [I32]))
    _rejects(module([first, _function(_returning(block), sym_name="g")]), "outside its region")


def test_rejects_use_before_definition() -> None:
    block = Block([I32])
    build = Builder(block)
    first = build.create("arith.addi", [block.arguments[0]] * 2)
    second = build.create("arith.addi", [block.arguments[0]] * 2)
    first.set_operand(0, second.result)
    _rejects(_function(_returning(block)), "used before it is defined")


def test_rejects_use_that_the_value_does_not_know() -> None:
    block = Block([I32])
    op = Builder(block).create("arith.addi", [block.arguments[0]] * 2)
    block.arguments[0].uses.pop()
    _rejects(_function(_returning(block)), "does not list this use")
    assert op.operands


def test_rejects_broken_parents() -> None:
    block = _returning(Block([I32]))
    function_op = _function(block)
    block.operations[0].parent = None
    _rejects(function_op, "another parent block")
    block.operations[0].parent = block
    function_op.regions[0].parent = None
    _rejects(function_op, "a region has another parent")


def test_rejects_misplaced_block_argument() -> None:
    block = _returning(Block([I32, I32]))
    block.arguments.reverse()
    _rejects(_function(block), "does not know its place")


def test_rejects_block_without_terminator() -> None:
    block = Block([I32])
    Builder(block).create("arith.addi", [block.arguments[0]] * 2)
    _rejects(_function(block), "is not a terminator")
    _rejects(_function(Block()), "a block is empty")


def test_rejects_functions_without_a_body_and_with_two_blocks() -> None:
    function_op = _function(_returning(Block()))
    function_op.regions[0].append(_returning(Block()))
    _rejects(function_op, "region 0 must have one block, has 2")
    function_op.regions[0].blocks.clear()
    _rejects(function_op, "region 0 must have one block, has 0")


def test_rejects_function_types_that_do_not_fit() -> None:
    _rejects(_function(_returning(Block([I32])), function_type=FunctionType((), ())), "entry block and function type differ")
    _rejects(_function(_returning(Block()), function_type=I32), "is not a function type")
    _rejects(_function(_returning(Block([I32])), arg_attrs=({}, {})), "one entry an argument")
    block = Block()
    block.append(Operation("scf.yield"))
    _rejects(_function(block), "a function ends in tt.return")


def test_rejects_two_functions_of_one_name() -> None:
    _rejects(module([_function(_returning(Block())), _function(_returning(Block()))]), "two functions are called f")


def test_error_shows_operation_and_source_line() -> None:
    built = parse_module(function("%0 = arith.extsi %i : i32 to i8", "%i: i32"))
    built.body.operations[0].body.operations[0].location = Location(SourceLocation("kernel.py", 12, 5))
    with pytest.raises(VerifyError) as caught:
        verify(built)
    text = str(caught.value)
    assert text.startswith("kernel.py:12:5: arith.extsi: cannot take i32 to i8")
    assert "arith.extsi %i : i32 to i8" in text


def test_accepts_module_attributes_of_other_dialects() -> None:
    parse('module attributes {"ttg.num-warps" = 4 : i32} {\n}\n')
