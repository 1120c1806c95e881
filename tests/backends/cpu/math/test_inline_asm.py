"""Who runs a kernel with PTX on a CPU is told what to write instead."""

from __future__ import annotations

import re

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.math.inline_asm import _INSTEAD, instead_of
from kernelpack.errors import UnsupportedError
from kernelpack.language.extra import libdevice

WHY = "it is PTX, which GPUs alone execute"


@pytest.mark.parametrize(
    ("asm", "told"),
    [
        ("ex2.approx.ftz.f32 $0, $1;", "tl.exp2 for ex2"),
        ("mul.hi.u32 $0, $1, $2;", "tl.umulhi for mul.hi"),
        ("mul.lo.u32 $0, $1, $2;", "operators (+, -, *, //, %) for mul"),
        ("cvt.rn.bf16x2.f32 $0, $2, $1;", "x.to(dtype) for cvt"),
        (
            "{ .reg .pred p; setp.lt.s32 p, $1, 0; selp.b32 $0, $2, $1, p; } // min.s32 $0;",
            "comparisons for setp, tl.where for selp",
        ),
        ("{\n.reg .b32 a;\nand.b32 a, $1, 15;\n@p shl.b32 $0, a, 4;\n}", "operators (&, |, ^, ~, <<, >>) for and and shl"),
        ("tanh.approx.f32 $0, $1;", "libdevice.tanh for tanh"),
    ],
)
def test_instructions_have_functions_that_do_the_same(asm: str, told: str) -> None:
    assert instead_of(asm) == f"{WHY}; every target has {told}"


@pytest.mark.parametrize("asm", ["", "mov.u64 $0, %globaltimer;", "nanosleep.u32 100;", "// add.f32 in a comment", "mov"])
def test_nothing_is_named_where_nothing_is_the_same(asm: str) -> None:
    assert instead_of(asm) == WHY


def test_every_function_that_is_named_exists() -> None:
    rooms = {"tl": tl, "libdevice": libdevice}
    named = {found for function in _INSTEAD.values() for found in re.findall(r"(tl|libdevice)\.(\w+)", function)}
    assert len(named) >= 20
    assert [name for room, name in sorted(named) if not hasattr(rooms[room], name)] == []


@kp.jit
def powers(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    raised = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [tl.load(x + at)], tl.float32, True, 1)
    tl.store(out + at, raised)


def test_the_error_names_the_line_and_the_function() -> None:
    x = torch.zeros(16)
    with pytest.raises(UnsupportedError, match=rf"{WHY}; every target has tl.exp2 for ex2") as raised:
        powers[(1,)](x, torch.empty_like(x), N=16)
    assert "test_inline_asm.py:" in str(raised.value)
