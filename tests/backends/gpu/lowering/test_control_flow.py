"""Loops and branches: values meet at the head of a block, counters never overflow, overlapping loops are not unrolled."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, spread
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.llir import SM90, lower

L = {"L": spread((64,), 2, (0,), Threads(1, 32))}


def test_a_loop_tests_before_its_first_iteration_and_then_what_is_left() -> None:
    in_order(
        lower(
            """
            %r = scf.for %i = %a to %b step %s iter_args(%t = %x) -> (tensor<64xf32, $L>)  : i32 {
              %y = arith.addf %t, %t : tensor<64xf32, $L>
              scf.yield %y : tensor<64xf32, $L>
            }
            tt.return %r : tensor<64xf32, $L>
            """,
            "%a: i32, %b: i32, %s: i32, %x: tensor<64xf32, $L>",
            L,
        ),
        """
        %C = icmp slt i32 %a, %b
        br i1 %C, label %for..., label %endfor...
        for...:
        %I = phi i32 [ %a, %entry ], [ %N, %for... ]
        %P = phi float [ %x0, %entry ], [ %Y, %for... ]
        %Q = phi float [ %x1, %entry ], [ %Z, %for... ]
        %Y = fadd contract float %P, %P
        %Z = fadd contract float %Q, %Q
        %L = sub i32 %b, %I
        %N = add i32 %I, %s
        %A = icmp ugt i32 %L, %s
        br i1 %A, label %for..., label %endfor...
        endfor...:
        %R = phi float [ %x0, %entry ], [ %Y, %for... ]
        %S = phi float [ %x1, %entry ], [ %Z, %for... ]
        return %R, %S
        """,
    )


@pytest.mark.parametrize(("waits", "kept"), [("%t = ttg.async_wait {num = 0 : i32}", True), ("gpu.barrier", False)])
def test_a_loop_whose_loads_run_ahead_is_not_unrolled(waits: str, kept: bool) -> None:
    text = lower(f"scf.for %i = %a to %a step %a  : i32 {{\n{waits}\n}}", "%a: i32", target=SM90)
    assert count(text, "br i1 ..., label %for..., label %endfor..., !llvm.loop !0") == kept


def test_branches_give_what_either_of_them_has() -> None:
    in_order(
        lower(
            """
            %r = scf.if %c -> (f32) {
              %y = arith.addf %x, %x : f32
              scf.yield %y : f32
            } else {
              scf.yield %x : f32
            }
            tt.return %r : f32
            """,
            "%c: i1, %x: f32",
        ),
        """
        br i1 %c, label %then..., label %else...
        then...:
        %Y = fadd contract float %x, %x
        br label %endif...
        else...:
        br label %endif...
        endif...:
        %R = phi float [ %Y, %then... ], [ %x, %else... ]
        return %R
        """,
    )


def test_a_branch_without_another_one_jumps_to_the_end() -> None:
    in_order(
        lower("scf.if %c {\ngpu.barrier\n}", "%c: i1"),
        "br i1 %c, label %then..., label %endif...\nthen...:\nbr label %endif...\nendif...:",
    )


def test_a_branch_ends_where_the_branches_in_it_end() -> None:
    text = lower(
        """
        %r = scf.if %c -> (f32) {
          scf.if %d {
            gpu.barrier
          }
          scf.yield %x : f32
        } else {
          scf.yield %y : f32
        }
        tt.return %r : f32
        """,
        "%c: i1, %d: i1, %x: f32, %y: f32",
    )
    in_order(text, "%R = phi float [ %x, %endif... ], [ %y, %else... ]")


def test_a_while_loop_passes_on_what_its_condition_has() -> None:
    in_order(
        lower(
            """
            %r = scf.while (%k = %n) : (i32) -> i32 {
              %m = arith.cmpi sgt, %k, %one : i32
              scf.condition(%m) %k : i32
            } do {
            ^bb0(%j: i32):
              %h = arith.subi %j, %one : i32
              scf.yield %h : i32
            }
            tt.return %r : i32
            """,
            "%n: i32, %one: i32",
        ),
        """
        br label %while...
        while...:
        %K = phi i32 [ %n, %entry ], [ %H, %do... ]
        %M = icmp sgt i32 %K, %one
        br i1 %M, label %do..., label %end...
        do...:
        %H = sub i32 %K, %one
        br label %while...
        end...:
        return %K
        """,
    )


@pytest.mark.parametrize(("op", "register"), [("tt.get_program_id", "ctaid"), ("tt.get_num_programs", "nctaid")])
def test_programs_are_blocks_of_the_grid(op: str, register: str) -> None:
    text = lower(f"%r = {op} y : i32\ntt.return %r : i32")
    in_order(text, f"%A = call i32 @llvm.nvvm.read.ptx.sreg.{register}.y()\nreturn %A")
