"""How much of a kernel is compiled before it is refused: what copies code has no end of its own that anybody would wait for."""

from __future__ import annotations

import re
from typing import Any

from kernelpack.errors import CompilationError, SourceLocation

MOST_COPIES = 10_000
"""How often the body of a loop is copied, by all unrolled loops around it together. Formulas of so many steps compile in some 5 s."""

MOST_NODES = 250_000
"""How many pieces of Python (names, operators, calls) are compiled, each as often as it is copied: 10 s on a core of an EPYC."""

MOST_OPERATIONS = 100_000
"""How many operations calls and loops are made into: a minute, where LLVM takes long for each."""

MOST_BITS = 4096
"""The length of a compile-time integer that ** or << makes; run-time ones have 64 bits."""

MOST_ENTRIES = 100_000
"""The length of a tuple or string that * makes."""


def check_copies(copies: int) -> None:
    """Raises CompilationError for an unrolled loop by which its body would be copied too often."""
    if copies > MOST_COPIES:
        raise CompilationError(
            f"the body of this loop would be copied {copies} times, at most {MOST_COPIES} are compiled",
            cure="use range or tl.range, whose body is compiled once",
        )


def check_nodes(nodes: int) -> None:
    """Raises CompilationError where more Python has been compiled than any kernel has."""
    if nodes > MOST_NODES:
        raise CompilationError(
            f"the kernel grows without end: more than {MOST_NODES} names, operators and calls were compiled up to here",
            cure="repeat code by range or tl.range instead of tl.static_range, and end what calls itself sooner",
        )


def check_operations(operations: int, location: SourceLocation | None, what: str) -> None:
    """Raises CompilationError for calls or loops that would become too many operations. `what` says what has so many."""
    if operations > MOST_OPERATIONS:
        raise CompilationError(
            f"{what} {operations} operations, at most {MOST_OPERATIONS} are compiled",
            location=location,
            cure="repeat code by range or tl.range instead of calls, and unroll loops less",
        )


def check_format(specification: str) -> None:
    """Raises CompilationError for a format of an f-string that would fill the memory: `f"{x:1000000000}"`."""
    widest = max((len(digits) for digits in re.findall(r"[0-9]+", specification)), default=0)
    if widest >= len(str(MOST_ENTRIES)):
        raise CompilationError(f"the format {specification[:40]!r} asks for {MOST_ENTRIES} characters or more")


def check_compile_time_value(symbol: str, left: Any, right: Any) -> None:
    """Raises CompilationError for an operator on compile-time values whose result would fill the memory."""
    if symbol in ("**", "<<") and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if symbol == "**" else left.bit_length() + right
        if abs(left) > 1 and bits > MOST_BITS:
            raise CompilationError(f"the integer would have {bits} bits, at most {MOST_BITS} are computed")
    if symbol == "*":
        counts = [value for value in (left, right) if isinstance(value, int)]
        lengths = [len(value) for value in (left, right) if isinstance(value, (tuple, str))]
        if counts and lengths and counts[0] * lengths[0] > MOST_ENTRIES:
            raise CompilationError(
                f"the result would have {counts[0] * lengths[0]} entries, at most {MOST_ENTRIES} are made",
                cure="fill a tile: tl.full([BLOCK], value, dtype)",
            )
