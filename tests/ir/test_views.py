"""Views: operands have the names of their row, and loops and branches say which values belong together."""

from __future__ import annotations

import pytest

from kernelpack.ir.core import Operation, find_function
from kernelpack.ir.dialect import operand, operand_name, operands_called, optional_operand, replace_operand
from kernelpack.ir.text import parse_module
from kernelpack.ir.views import For, If, While, erase_slots, slot_fed_by, slot_of, slots

TEXT = """
module {
  tt.func public @f(%p: !tt.ptr<f32>, %n: i32, %c: i1, %x: f32, %y: f32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %a:2 = scf.for %i = %zero to %n step %one iter_args(%s = %x, %t = %y) -> (f32, f32) : i32 {
      %u = arith.addf %s, %t : f32
      scf.yield %t, %u : f32, f32
    }
    %b = scf.if %c -> (f32) {
      scf.yield %a#0 : f32
    } else {
      scf.yield %x : f32
    }
    %w:2 = scf.while (%k = %n, %l = %b) : (i32, f32) -> (f32, i32) {
      %more = arith.cmpi sgt, %k, %zero : i32
      scf.condition(%more) %l, %k : f32, i32
    } do {
    ^bb0(%v: f32, %j: i32):
      %next = arith.subi %j, %one : i32
      scf.yield %next, %v : i32, f32
    }
    tt.store %p, %w#0, %c : !tt.ptr<f32>
    tt.return
  }
}
"""


@pytest.fixture
def body() -> dict[str, Operation]:
    """The operations of a function by their names."""
    return {op.name: op for op in find_function(parse_module(TEXT), "f").body.operations}


def test_a_for_carries_values_from_initial_and_yield(body: dict[str, Operation]) -> None:
    loop = For.of(body["scf.for"])
    assert [value.name for value in (loop.upper, loop.induction)] == ["n", "i"]
    assert list(loop.bounds) == [loop.lower, loop.upper, loop.step]
    first, second = loop.carried
    assert [first.initial.name, first.argument.name, first.yielded.name] == ["x", "s", "t"]
    assert [second.initial.name, second.argument.name, second.yielded.name] == ["y", "t", "u"]
    assert [carried.result for carried in loop.carried] == loop.op.results
    assert [carried.initial for carried in loop.carried] == list(loop.initial)
    assert [carried.argument for carried in loop.carried] == list(loop.arguments)
    assert [carried.yielded for carried in loop.carried] == list(loop.yielded)


def test_carried_values_can_be_replaced(body: dict[str, Operation]) -> None:
    first, second = For.of(body["scf.for"]).carried
    first.begin_with(second.initial)
    first.go_on_with(first.argument)
    assert [first.initial.name, first.yielded.name] == ["y", "s"]


def test_an_if_chooses_between_its_yields(body: dict[str, Operation]) -> None:
    choice = If.of(body["scf.if"])
    (slot,) = choice.chosen
    assert choice.condition.name == "c"
    assert slot.values == (choice.op.result,)
    assert slot.source_values() == [body["scf.for"].results[0], choice.branches[1].terminator.operand]


def test_a_while_tests_and_passes(body: dict[str, Operation]) -> None:
    loop = While.of(body["scf.while"])
    assert loop.condition.name == "more"
    assert [value.name for value in loop.passed_on] == ["l", "k"]
    assert [[value.name for value in slot.source_values()] for slot in loop.tested] == [["n", "next"], ["b", "v"]]
    assert [[value.name for value in slot.source_values()] for slot in loop.passed] == [["l"], ["k"]]
    assert [slot.values for slot in loop.passed] == list(zip(loop.op.results, loop.after.arguments, strict=True))


def test_slots_are_found_by_their_values_and_by_their_sources(body: dict[str, Operation]) -> None:
    for op in body.values():
        for slot in slots(op):
            assert [slot_of(value) for value in slot.values] == [slot] * len(slot.values)
            assert [slot_fed_by(user, index) for user, index in slot.sources] == [slot] * len(slot.sources)
    loop = body["scf.for"]
    assert slot_of(For.of(loop).induction) is None
    assert slot_fed_by(loop, 0) is None
    assert slot_of(body["tt.store"].operands[0]) is None


def test_erased_slots_are_gone_everywhere(body: dict[str, Operation]) -> None:
    loop = For.of(body["scf.for"])
    first, second = loop.carried
    second.go_on_with(second.argument)
    loop.op.body.operations[0].erase()
    first.go_on_with(first.argument)
    erase_slots([second])
    assert [carried.initial.name for carried in loop.carried] == ["x"]
    assert [argument.name for argument in loop.arguments] == ["s"]


def test_a_view_refuses_another_operation(body: dict[str, Operation]) -> None:
    with pytest.raises(ValueError, match=r"scf\.while is no scf\.for"):
        For.of(body["scf.while"])


def test_operands_are_found_by_the_names_of_their_row(body: dict[str, Operation]) -> None:
    store, loop = body["tt.store"], body["scf.for"]
    assert [operand(store, name) for name in ("ptr", "value", "mask")] == store.operands
    assert [operand_name(store, index) for index in range(3)] == ["ptr", "value", "mask"]
    assert [value.name for value in operands_called(loop, "initial")] == ["x", "y"]
    assert operand_name(loop, 4) == "initial"
    replace_operand(store, "value", For.of(loop).carried[0].initial)
    assert operand(store, "value").name == "x"
    store.set_operands(store.operands[:2])
    assert optional_operand(store, "mask") is None
    for look_up in (operand, lambda op, name: replace_operand(op, name, op.operands[0])):
        with pytest.raises(KeyError, match="no operand 'mask' here"):
            look_up(store, "mask")
    with pytest.raises(KeyError, match="no operand called 'pointer'"):
        operand(store, "pointer")


def test_the_only_operand_is_asked_of_operations_with_one(body: dict[str, Operation]) -> None:
    assert body["scf.if"].operand.name == "c"
    with pytest.raises(ValueError, match=r"tt\.store has 3 operands, not one"):
        _ = body["tt.store"].operand
