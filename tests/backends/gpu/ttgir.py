"""Runs a pass over a function and compares what comes out, as text. Layouts are written as short names."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping

from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.layout.encoding import LinearEncoding, SharedEncoding
from kernelpack.layout.linear import LinearLayout


def parse(body: str, arguments: str, layouts: Mapping[str, LinearLayout]) -> Operation:
    """Returns a verified module; `$NAME` in the text stands for a layout."""
    text = f"tt.func public @f({arguments}) {{\n{body}\ntt.return\n}}"
    for name, layout in layouts.items():
        shared = layout.in_names == ("offset",)
        text = text.replace(f"${name}", str(SharedEncoding(layout) if shared else LinearEncoding(layout)))
    module = parse_module(text)
    verify(module)
    return module


def text_of(module: Operation, layouts: Mapping[str, LinearLayout]) -> str:
    """Returns the body of the function with the names of its layouts; other layouts stay as they are."""
    lines = str(module).splitlines()
    aliases = dict(line.split(" = ", 1) for line in lines if line.startswith("#"))
    known = {str(SharedEncoding(v) if v.in_names == ("offset",) else LinearEncoding(v)): k for k, v in layouts.items()}
    start = next(number for number, line in enumerate(lines) if "tt.func" in line)
    body = textwrap.dedent("\n".join(lines[start + 1 : lines.index("    tt.return", start)]))
    for alias in sorted(aliases, key=len, reverse=True):
        body = body.replace(alias, f"${known[aliases[alias]]}" if aliases[alias] in known else aliases[alias])
    return body


def check(
    run: Callable[[Operation], object], arguments: str, before: str, after: str, layouts: Mapping[str, LinearLayout]
) -> None:
    """`run` on the function turns `before` into `after`; both are verified and compared as they print."""
    module = parse(textwrap.dedent(before).strip(), arguments, layouts)
    run(entry_function(module))
    verify(module)
    expected = text_of(parse(textwrap.dedent(after).strip(), arguments, layouts), layouts)
    got = text_of(module, layouts)
    assert got == expected, f"the pass gives\n{got}\ninstead of\n{expected}"
