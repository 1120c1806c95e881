"""Atomic operations, by those of LLVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.gpu.lowering.atomics import atomic, by_llvm
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand
from kernelpack.llvm.text import Val

_NAMES = {"exch": "xchg"}
"""What LLVM calls otherwise."""


def _atomic_rmw(state: Lowering, op: Operation) -> None:
    pointers, values = state[operand(op, "ptr")], state[operand(op, "val")]
    what: str = op.attributes["atomic_rmw_op"]
    scope, order = attribute(op, "scope"), attribute(op, "sem")

    def update(registers: Sequence[int], predicate: Val | None) -> list[Val]:
        (register,) = registers
        name = f"atomicrmw {_NAMES.get(what, what)}"
        return [by_llvm(state, name, pointers[register], [values[register]], scope, order, predicate)]

    atomic(state, op, update)


def _atomic_cas(state: Lowering, op: Operation) -> None:
    """Compares bits, as all targets do."""
    pointers, compared, values = (state[operand(op, name)] for name in ("ptr", "cmp", "val"))
    scope, order = attribute(op, "scope"), attribute(op, "sem")
    success = "monotonic" if order == "relaxed" else order
    failure = "acquire" if order in ("acquire", "acq_rel") else "monotonic"

    def exchange(registers: Sequence[int], predicate: Val | None) -> list[Val]:
        (register,) = registers
        emit, kind = state.emit, values[register].type
        old, new = (state.as_integer(of[register]) for of in (compared, values))

        def swap() -> Val:
            pair = f"{{{old.type}, i1}}"
            text = f"cmpxchg {pointers[register]}, {old}, {new}{state.scopes[scope]} {success} {failure}"
            return state.fields(emit.op(pair, text), [old.type])[0]

        if predicate is None:
            return [state.from_integer(swap(), kind)]
        then, end, before = emit.new_label("swap"), emit.new_label("endswap"), emit.block
        emit.branch(predicate, then, end)
        emit.label(then)
        found = swap()
        emit.jump(end)
        emit.label(end)
        found = emit.op(found.type, f"phi {found.type} [ {found.name}, %{then} ], [ 0, %{before} ]")
        return [state.from_integer(found, kind)]

    atomic(state, op, exchange)


ATOMICS: dict[str, Callable[[Lowering, Operation], None]] = {"tt.atomic_rmw": _atomic_rmw, "tt.atomic_cas": _atomic_cas}
