"""Runs a pass over the body of a function and compares what comes out, as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from types import ModuleType

import pytest

from kernelpack.ir.core import Operation
from kernelpack.ir.verify import verify
from tests.ir.examples import function, parse


def wrap(body: str, arguments: str = "") -> str:
    """Returns a module whose function has this body; its result types are those of the body's `tt.return`."""
    returned = re.search(r"tt\.return .*? : (.*)$", body.strip().split("\n")[-1])
    return function(body, arguments, f"({returned[1]})" if returned else "")


def body_of(module: Operation) -> str:
    """Returns the text between a function's braces, not indented."""
    lines = str(module.body.operations[0]).rstrip().split("\n")[1:-1]
    return textwrap.dedent("\n".join(lines))


def check(run: Callable[[Operation], None], arguments: str, before: str, after: str) -> None:
    """`before` becomes `after`, which nothing changes any more; both are verified, and compared as they print."""
    module = parse(wrap(before, arguments))
    run(module)
    verify(module)
    expected = body_of(parse(wrap(after, arguments)))
    assert body_of(module) == expected, f"the pass gives\n{body_of(module)}\ninstead of\n{expected}"
    run(module)
    assert body_of(module) == expected, f"a second run gives\n{body_of(module)}"


def stays(run: Callable[[Operation], None], arguments: str, body: str) -> None:
    """A pass leaves this as it is."""
    check(run, arguments, body, body)


def nested_choices(depth: int) -> str:
    """Returns a body of conditionals inside of conditionals, the way `elif` chains become ttir."""
    opening = "".join(f"%y{i} = scf.if %c{i} -> (i32) {{\nscf.yield %x : i32\n}} else {{\n" for i in range(depth))
    closing = "".join(f"}}\nscf.yield %y{i} : i32\n" for i in reversed(range(1, depth)))
    return f"{opening}scf.yield %x : i32\n{closing}}}\ntt.return %y0 : i32"


def assert_linear_in_nesting(
    run: Callable[[Operation], object], module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asserts that a pass over nested conditionals calls a function of a module as often as there are conditionals, within a factor."""
    calls: list[int] = []
    original = getattr(module, name)

    def counted(*arguments: object) -> object:
        calls[-1] += 1
        return original(*arguments)

    monkeypatch.setattr(module, name, counted)
    for depth in (10, 20, 40):
        calls.append(0)
        run(parse(wrap(nested_choices(depth), ", ".join(["%x: i32", *(f"%c{i}: i1" for i in range(depth))]))))
    assert calls[0] > 0
    assert calls[2] <= 2.5 * calls[1] <= 6.25 * calls[0]
