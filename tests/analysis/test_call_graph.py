"""Callees come before their callers; recursion and calls of nothing are refused at the line of the call."""

from __future__ import annotations

import pytest

from kernelpack.analysis.call_graph import CallGraph, enclosing_function
from kernelpack.errors import CompilationError, SourceLocation
from kernelpack.ir.core import find_function
from kernelpack.ir.text import parse_module

MODULE = """
tt.func public @kernel(%n: i32) {
  tt.call @top(%n) : (i32) -> ()
  tt.call @shared(%n) : (i32) -> ()
  tt.return
}
tt.func private @top(%n: i32) attributes {noinline = true} {
  scf.if %c {
    tt.call @shared(%n) : (i32) -> () loc("k.py":7:3)
  }
  tt.return
}
tt.func private @shared(%n: i32) attributes {noinline = true} {
  tt.return
}
""".replace("  scf.if %c {", "  %z = arith.constant 0 : i32\n  %c = arith.cmpi eq, %n, %z : i32\n  scf.if %c {")


def test_callees_come_first() -> None:
    module = parse_module(MODULE)
    graph = CallGraph(module)
    assert [function.attributes["sym_name"] for function in graph.order] == ["shared", "top", "kernel"]
    assert [function.attributes["sym_name"] for function in graph.callers_first()] == ["kernel", "top", "shared"]
    sites = graph.sites(find_function(module, "shared"))
    assert [enclosing_function(site).attributes["sym_name"] for site in sites] == ["kernel", "top"]
    assert graph.sites(graph.order[-1]) == []
    assert all(graph.callees[site] is graph.order[0] for site in sites)


@pytest.mark.parametrize(
    ("callee", "message", "cure"),
    [
        ("top", "kernel calls top calls top: functions of kernels cannot be recursive", "write a loop"),
        ("nowhere", "nowhere is called, and no function of the kernel is called that", "correct its name"),
    ],
)
def test_what_cannot_be_called_is_refused_at_its_line(callee: str, message: str, cure: str) -> None:
    module = parse_module(MODULE.replace("@shared(%n) : (i32) -> () loc", f"@{callee}(%n) : (i32) -> () loc"))
    with pytest.raises(CompilationError) as raised:
        CallGraph(module)
    assert raised.value.message == message
    assert cure in str(raised.value.cure)
    assert raised.value.location == SourceLocation("k.py", 7, 3)
