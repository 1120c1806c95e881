"""What is checked of a kernel's accesses, and what the kernel is told for it. tests/passes/data/check_accesses.ttir has the operations."""

from __future__ import annotations

from kernelpack.backends.cpu.ttir.check_accesses import check_accesses
from kernelpack.compiled import Parameter
from kernelpack.context import Context
from kernelpack.ir.core import entry_function
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.options import Options
from kernelpack.target import Target


def checked(body: str, arguments: str) -> tuple[list[str], Context]:
    """Returns what the accesses of a kernel are checked for, in order, and the context after the pass."""
    module = parse_module(f"module {{ tt.func public @kernel({arguments}) {{\n{body}\ntt.return\n}} }}")
    context = Context(Target.parse("cpu:x86-64-v3"), Options(checked=True), "kernel")
    verify(check_accesses(module, context))
    function = entry_function(module)
    assert [Parameter(one.name, str(one.type)) for one in function.body.arguments][arguments.count("%") :] == context.added
    return [op.attributes["message"] for op in module.walk() if op.name == "cpu.check_access"], context


def test_only_tensors_that_are_reached_have_bounds() -> None:
    messages, context = checked(
        """
        %one = tt.load %y : !tt.ptr<f32>
        tt.store %y, %one : !tt.ptr<f32>
        """,
        "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32",
    )
    assert messages == ["load through y", "store through y"]
    assert [parameter.name for parameter in context.added] == ["y.begin", "y.end"]
    assert context.figures["unchecked"] == 0


def test_addresses_of_loops_lead_to_the_parameters_they_began_at() -> None:
    messages, _ = checked(
        """
        %end = scf.for %i = %n to %n step %n iter_args(%at = %x) -> (!tt.ptr<f32>) : i32 {
          %one = tt.load %at : !tt.ptr<f32>
          %next = tt.addptr %at, %n : !tt.ptr<f32>, i32
          scf.yield %next : !tt.ptr<f32>
        }
        %last = tt.load %end : !tt.ptr<f32>
        """,
        "%x: !tt.ptr<f32>, %n: i32",
    )
    assert messages == ["load through x", "load through x"]


def test_one_root_that_is_no_parameter_leaves_an_access_unchecked() -> None:
    messages, context = checked(
        """
        %address = tt.load %table : !tt.ptr<i64>
        %elsewhere = tt.int_to_ptr %address : i64 -> !tt.ptr<f32>
        %either = arith.select %flag, %x, %elsewhere : !tt.ptr<f32>
        %one = tt.load %either : !tt.ptr<f32>
        """,
        "%x: !tt.ptr<f32>, %table: !tt.ptr<i64>, %flag: i1",
    )
    assert messages == ["load through table"]
    assert context.figures["unchecked"] == 1
