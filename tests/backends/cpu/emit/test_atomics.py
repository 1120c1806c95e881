"""Atomic updates of one element: LLVM's own, loops of compare-and-swap for floats of 16 bits, orders, masks, old values."""

from __future__ import annotations

import pytest

from kernelpack.backends.cpu.emit.atomics import emit_atomic
from kernelpack.ir.core import Operation
from kernelpack.llvm.text import Val
from tests.backends.cpu.emit.llir import lowering, written
from tests.backends.fragments import count, in_order
from tests.ir.examples import function, parse

LLVM = {"f32": "float", "bf16": "i16", "f16": "half", "i32": "i32", "i64": "i64"}


def update(what: str, kind: str, order: str = "acq_rel", mask: bool = False) -> Operation:
    more, types = (", %m", ", i1") if mask else ("", "")
    text = f"%0 = tt.atomic_rmw {what}, {order}, gpu, %p, %v{more} : (!tt.ptr<{kind}>, {kind}{types}) -> {kind}"
    module = parse(function(text, f"%p: !tt.ptr<{kind}>, %v: {kind}, %m: i1"))
    return next(op for op in module.walk() if op.name == "tt.atomic_rmw")


def exchange(kind: str, order: str) -> Operation:
    text = f"%0 = tt.atomic_cas {order}, gpu, %p, %v, %v : (!tt.ptr<{kind}>, {kind}, {kind}) -> {kind}"
    return next(op for op in parse(function(text, f"%p: !tt.ptr<{kind}>, %v: {kind}")).walk() if op.name == "tt.atomic_cas")


def emitted(op: Operation, kind: str, mask: bool = False) -> tuple[str, list[Val]]:
    """The lines of an update, and the old values in the order in which they are kept."""
    lo, kept = lowering(), []
    compared = [Val(LLVM[kind], "%c")] if op.name == "tt.atomic_cas" else []
    values = [Val("ptr", "%p"), *compared, Val(LLVM[kind], "%v"), *([Val("i1", "%m")] if mask else [])]

    def keep(old: Val) -> None:
        kept.append(old)
        lo.em.line(f"keep {old}")

    emit_atomic(lo, op, values, keep)
    return written(lo.em), kept


@pytest.mark.parametrize(
    ("what", "kind", "line"),
    [
        ("add", "i32", "%A = atomicrmw add ptr %p, i32 %v acq_rel, align 4"),
        ("umax", "i64", "%A = atomicrmw umax ptr %p, i64 %v acq_rel, align 8"),
        ("exch", "i32", "%A = atomicrmw xchg ptr %p, i32 %v acq_rel, align 4"),
        ("fadd", "f32", "%A = atomicrmw fadd ptr %p, float %v acq_rel, align 4"),
        ("fadd", "f16", "%A = atomicrmw fadd ptr %p, half %v acq_rel, align 2"),
    ],
)
def test_llvm_has_most_updates(what: str, kind: str, line: str) -> None:
    text, kept = emitted(update(what, kind), kind)
    assert in_order(text, line + f"\nkeep {LLVM[kind]} %A")["A"] == kept[0].name
    assert len(text.splitlines()) == 2


def test_where_the_mask_is_off_the_old_value_is_zero_and_memory_is_not_touched() -> None:
    text, kept = emitted(update("add", "i32", mask=True), "i32", mask=True)
    in_order(
        text,
        """
        keep i32 0
        br i1 %m, label %atomic..., label %next...
        atomic...:
        %A = atomicrmw add ptr %p, i32 %v acq_rel, align 4
        keep i32 %A
        br label %next...
        next...:
        """,
    )
    assert kept[0] == Val("i32", "0")


@pytest.mark.parametrize(
    ("order", "update_order", "exchange_order"),
    [
        ("relaxed", "monotonic", "monotonic monotonic"),
        ("acquire", "acquire", "acquire acquire"),
        ("release", "release", "release monotonic"),
        ("acq_rel", "acq_rel", "acq_rel acquire"),
    ],
)
def test_orders_of_memory(order: str, update_order: str, exchange_order: str) -> None:
    """A failed exchange writes nothing: it cannot release."""
    text, _ = emitted(update("add", "i32", order), "i32")
    assert count(text, f"%A = atomicrmw add ptr %p, i32 %v {update_order}, align 4") == 1
    text, _ = emitted(exchange("i32", order), "i32")
    assert count(text, f"%A = cmpxchg ptr %p, i32 %c, i32 %v {exchange_order}, align 4") == 1


def test_exchanges_compare_bits() -> None:
    text, _ = emitted(exchange("f32", "acq_rel"), "f32")
    in_order(
        text,
        """
        %C = bitcast float %c to i32
        %V = bitcast float %v to i32
        %X = cmpxchg ptr %p, i32 %C, i32 %V acq_rel acquire, align 4
        %O = extractvalue { i32, i1 } %X, 0
        %F = bitcast i32 %O to float
        keep float %F
        """,
    )


def test_bfloat16_is_added_until_nobody_wrote_in_between() -> None:
    text, _ = emitted(update("fadd", "bf16"), "bf16")
    in_order(
        text,
        """
        %F = load atomic i16, ptr %p monotonic, align 2
        store i16 %F, ptr %S, align 2
        br label %again...
        again...:
        %B = load i16, ptr %S, align 2
        %W = zext i16 %B to i32
        %X = fadd contract float ...
        %N = trunc i32 ... to i16
        %C = cmpxchg ptr %p, i16 %B, i16 %N acq_rel monotonic, align 2
        %G = extractvalue { i16, i1 } %C, 0
        store i16 %G, ptr %S, align 2
        %D = extractvalue { i16, i1 } %C, 1
        br i1 %D, label %updated..., label %again...
        updated...:
        keep i16 %B
        """,
    )


@pytest.mark.parametrize(("what", "intrinsic"), [("fmax", "maxnum"), ("fmin", "minnum")])
def test_maxima_of_halves_are_loops_too(what: str, intrinsic: str) -> None:
    text, _ = emitted(update(what, "f16"), "f16")
    in_order(text, f"again...:\n%B = bitcast i16 ... to half\n%M = call float @llvm.{intrinsic}.f32(...)\n%C = cmpxchg ...")
