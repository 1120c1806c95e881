"""The roles of a kernel: groups of warps that run different code, and how many copies of a group there are."""

from __future__ import annotations

from collections.abc import Iterator

from kernelpack.analysis.allocation import ROLE
from kernelpack.ir.core import Operation


def roles(function: Operation) -> Iterator[Operation]:
    """Yields the roles of a kernel in order; none where all warps run the same code."""
    return (op for op in function.walk() if op.name == ROLE)


def role_of(op: Operation) -> Operation | None:
    """Returns the role that an operation is in."""
    return next((outer for outer in op.ancestors() if outer.name == ROLE), None)


def copies_of(op: Operation) -> int:
    """Returns how many groups of warps run an operation at the same time."""
    role = role_of(op)
    return 1 if role is None else int(role.attributes["copies"])


def scopes(function: Operation, num_warps: int) -> list[tuple[Operation, int]]:
    """Returns the parts of a kernel whose tiles are spread over the same warps: its roles, or the whole of it."""
    return [(role, int(role.attributes["num_warps"])) for role in roles(function)] or [(function, num_warps)]
