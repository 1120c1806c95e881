"""inline: bodies take the place of calls, locations remember the call, recursion is refused with the user's line."""

from __future__ import annotations

import pytest

from kernelpack.errors import CompilationError, SourceLocation
from kernelpack.ir.core import Location, Operation, Value
from kernelpack.ir.printer import print_op
from kernelpack.passes import inline
from tests.ir.examples import parse


def check(before: str, after: str) -> None:
    module = parse(before)
    inline(module)
    assert str(module) == str(parse(after))


def test_nested_calls_with_several_results() -> None:
    check(
        """
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
          %a, %b = tt.call @both(%n) : (i32) -> (i32, i32)
          %c = arith.addi %a, %b : i32
          tt.store %p, %c : !tt.ptr<i32>
          tt.return
        }
        tt.func private @twice(%x: i32) -> i32 {
          %y = arith.addi %x, %x : i32
          tt.return %y : i32
        }
        tt.func private @both(%x: i32) -> (i32, i32) {
          %y = tt.call @twice(%x) : (i32) -> i32
          %z = tt.call @twice(%y) : (i32) -> i32
          tt.return %x, %z : i32, i32
        }
        """,
        """
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
          %y = arith.addi %n, %n : i32
          %b = arith.addi %y, %y : i32
          %c = arith.addi %n, %b : i32
          tt.store %p, %c : !tt.ptr<i32>
          tt.return
        }
        """.replace("%b", "%y_0"),
    )


def test_calls_in_loops_branches_and_combines() -> None:
    check(
        """
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32, %c: i1, %t: tensor<4xi32>) {
          %r = scf.for %i = %n to %n step %n iter_args(%x = %n) -> (i32)  : i32 {
            %y = scf.if %c -> (i32) {
              %s = "tt.reduce"(%t) <{axis = 0 : i32}> ({
              ^bb0(%l: i32, %m: i32):
                %o = tt.call @add(%l, %m) : (i32, i32) -> i32
                tt.reduce.return %o : i32
              }) : (tensor<4xi32>) -> i32
              scf.yield %s : i32
            } else {
              %q = tt.call @add(%x, %i) : (i32, i32) -> i32
              scf.yield %q : i32
            }
            scf.yield %y : i32
          }
          tt.store %p, %r : !tt.ptr<i32>
          tt.return
        }
        tt.func private @add(%x: i32, %y: i32) -> i32 {
          %z = arith.addi %x, %y : i32
          tt.return %z : i32
        }
        """,
        """
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32, %c: i1, %t: tensor<4xi32>) {
          %r = scf.for %i = %n to %n step %n iter_args(%x = %n) -> (i32)  : i32 {
            %y = scf.if %c -> (i32) {
              %s = "tt.reduce"(%t) <{axis = 0 : i32}> ({
              ^bb0(%l: i32, %m: i32):
                %z = arith.addi %l, %m : i32
                tt.reduce.return %z : i32
              }) : (tensor<4xi32>) -> i32
              scf.yield %s : i32
            } else {
              %z_0 = arith.addi %x, %i : i32
              scf.yield %z_0 : i32
            }
            scf.yield %y : i32
          }
          tt.store %p, %r : !tt.ptr<i32>
          tt.return
        }
        """,
    )


def test_function_without_results_and_unused_function() -> None:
    check(
        """
        tt.func private @unused() {
          tt.return
        }
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
          tt.call @put(%p, %n) : (!tt.ptr<i32>, i32) -> ()
          tt.return
        }
        tt.func private @put(%p: !tt.ptr<i32>, %n: i32) {
          tt.store %p, %n : !tt.ptr<i32>
          tt.return
        }
        """,
        """
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
          tt.store %p, %n : !tt.ptr<i32>
          tt.return
        }
        """,
    )


def test_noinline_stays_but_its_callees_do_not() -> None:
    check(
        """
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
          tt.call @put(%p, %n) : (!tt.ptr<i32>, i32) -> ()
          tt.return
        }
        tt.func private @put(%p: !tt.ptr<i32>, %n: i32) attributes {noinline = true} {
          %m = tt.call @twice(%n) : (i32) -> i32
          tt.store %p, %m : !tt.ptr<i32>
          tt.return
        }
        tt.func private @twice(%x: i32) -> i32 {
          %y = arith.addi %x, %x : i32
          tt.return %y : i32
        }
        """,
        """
        tt.func public @kernel(%p: !tt.ptr<i32>, %n: i32) {
          tt.call @put(%p, %n) : (!tt.ptr<i32>, i32) -> ()
          tt.return
        }
        tt.func private @put(%p: !tt.ptr<i32>, %n: i32) attributes {noinline = true} {
          %y = arith.addi %n, %n : i32
          tt.store %p, %y : !tt.ptr<i32>
          tt.return
        }
        """,
    )


_CHAIN = """
tt.func public @kernel(%n: i32) {
  %a = tt.call @outer(%n) : (i32) -> i32 loc("k.py":3:1)
  tt.return
}
tt.func private @outer(%x: i32) -> i32 {
  %y = tt.call @inner(%x) : (i32) -> i32 loc("k.py":9:5)
  tt.return %y : i32
}
tt.func private @inner(%x: i32) -> i32 {
  %y = INNER loc("lib.py":20:7)
  tt.return %y : i32
}
"""


def test_locations_name_every_call() -> None:
    module = parse(_CHAIN.replace("INNER", "arith.addi %x, %x : i32"))
    inline(module)
    text = print_op(module, locations=True)
    assert 'loc(callsite("lib.py":20:7 at callsite("k.py":9:5 at "k.py":3:1)))' in text


@pytest.mark.parametrize(("callee", "chain"), [("inner", "inner calls inner"), ("outer", "outer calls inner calls outer")])
def test_recursion_is_refused(callee: str, chain: str) -> None:
    module = parse(_CHAIN.replace("INNER", f"tt.call @{callee}(%x) : (i32) -> i32"))
    with pytest.raises(CompilationError) as caught:
        inline(module)
    assert chain in caught.value.message
    assert caught.value.location == SourceLocation("lib.py", 20, 7)
    assert "cannot be recursive" in str(caught.value)
    assert caught.value.cure == "write a loop"


def test_unknown_locations_stay_unknown() -> None:
    module = parse(_CHAIN.replace("INNER", "arith.addi %x, %x : i32").replace(' loc("k.py":3:1)', ""))
    inline(module)
    op = module.body.operations[0].body.operations[0]
    assert op.location == Location(SourceLocation("lib.py", 20, 7), Location(SourceLocation("k.py", 9, 5), Location()))


def test_each_body_is_copied_once_however_deep_its_call_is_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = 0
    clone_alone = Operation.clone_alone

    def counted(op: Operation, mapping: dict[Value, Value]) -> Operation:
        nonlocal copies
        copies += 1
        return clone_alone(op, mapping)

    depth = 50
    bodies = ["%y = arith.addi %x, %x : i32", *(f"%y = tt.call @f{n}(%x) : (i32) -> i32" for n in range(depth))]
    called = [f"tt.func private @f{n}(%x: i32) -> i32 {{\n{body}\ntt.return %y : i32\n}}" for n, body in enumerate(bodies)]
    kernel = f"tt.func public @kernel(%n: i32) {{\n%a = tt.call @f{depth}(%n) : (i32) -> i32\ntt.return\n}}"
    module = parse("\n".join([kernel, *called]))
    monkeypatch.setattr(Operation, "clone_alone", counted)
    inline(module)
    assert copies == 1  # the addition; a chain of calls is no reason to copy it more often
    added, _ = module.body.operations[0].body.operations
    location, sites = added.location, 0
    while location.callsite is not None:
        location, sites = location.callsite, sites + 1
    assert sites == depth + 1
