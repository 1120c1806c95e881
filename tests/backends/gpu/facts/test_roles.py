"""Which warps run which role, with how many registers, and what does not fit a multiprocessor."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.facts.roles import (
    REGISTERS,
    check_roles,
    copies_of,
    registers_of_roles,
    role_of,
    roles_of,
    scopes,
    warps_of,
)
from kernelpack.errors import CompilationError
from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.families import Threads, spread
from tests.backends.gpu.ttgir import parse


def role(num_warps: int = 4, copies: int = 1, registers: int = 0) -> str:
    attributes = f"copies = {copies} : i32, num_warps = {num_warps} : i32, registers = {registers} : i32"
    return f'"ttg.role"() <{{{attributes}}}> ({{\n^bb0(%c: i32):\n%two = arith.addi %c, %c : i32\nttg.warp_return\n}}) : () -> ()\n'


def group(*roles: str) -> str:
    return f'"ttg.warp_specialize"() ({{\n{"".join(roles)}ttg.warp_return\n}}) : () -> ()\n'


def function(body: str) -> Operation:
    return entry_function(parse(body, "%n: i32, %b: i1, %x: tensor<64xf32, $L>", {"L": spread((64,), 1, (0,), Threads(4, 32))}))


def test_roles_begin_at_a_warpgroup_and_have_barriers_of_their_own() -> None:
    root = function(group(role(1), role(4, 3), role(8)))
    assert [(place.first, place.width, place.barrier) for place in roles_of(root)] == [(0, 4, 1), (4, 12, 2), (16, 8, 5)]
    assert warps_of(root, 4) == 24
    assert [(scope.name, warps) for scope, warps in scopes(root, 4)] == [("ttg.role", 1), ("ttg.role", 4), ("ttg.role", 8)]


def test_a_kernel_without_roles_is_run_by_all_warps() -> None:
    root = function("%m = arith.addi %n, %n : i32")
    assert (roles_of(root), warps_of(root, 8), list(scopes(root, 8))) == ([], 8, [(root, 8)])
    (add, _) = root.body.operations
    assert (role_of(add), copies_of(add)) == (None, 1)


def test_an_operation_of_a_role_knows_its_role_and_how_many_run_it() -> None:
    root = function(group(role(1), role(4, 3)))
    inner = [op for op in root.walk() if op.name == "arith.addi"]
    assert [copies_of(op) for op in inner] == [1, 3]
    assert [role_of(op) for op in inner] == [place.op for place in roles_of(root)]


@pytest.mark.parametrize(
    ("few", "many", "registers"),
    [(1, 4, (0, 0)), (1, 8, (40, 232)), (4, 8, (40, 232)), (1, 12, (24, 160)), (5, 12, (24, 152))],
)
def test_what_copies_has_few_registers_and_what_computes_has_the_rest(few: int, many: int, registers: tuple[int, int]) -> None:
    assert registers_of_roles(few, many) == registers
    threads = -(-few // 4) * 128, many * 32
    assert sum(count * each for count, each in zip(threads, registers, strict=True)) <= REGISTERS


@pytest.mark.parametrize("text", ["", group(role(4), role(4, 2)), group(role(4, 1, 40), role(4, 2, 232))])
def test_roles_that_fit_are_taken(text: str) -> None:
    check_roles(function(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (group(role()) + "%m = arith.addi %n, %n : i32", "must be the last statement"),
        (f"scf.if %b {{\n{group(role())}}}", "must be the last statement"),
        (group(role()) + group(role()), "must be the last statement"),
        ("%y = arith.addf %x, %x : tensor<64xf32, $L>\n" + group(role()), "arith.addf works on a tile in registers outside"),
        (group(role(4, 1, 40), role(8, 1, 256)), f"the roles have 70656 registers together, a multiprocessor has {REGISTERS}"),
        (group(role(16, 2), role(1)), "the roles have 36 warps together, a block has at most 32"),
    ],
)
def test_roles_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        check_roles(function(text))
