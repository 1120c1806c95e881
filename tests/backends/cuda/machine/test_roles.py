"""Which warps run which role, and what does not fit a multiprocessor."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.machine.roles import REGISTERS, check_roles, roles_of, warps_of
from kernelpack.errors import CompilationError
from tests.backends.gpu.role_texts import function, group, role


def test_roles_begin_at_a_warpgroup_and_have_barriers_of_their_own() -> None:
    root = function(group(role(1), role(4, 3), role(8)))
    assert [(place.first, place.width, place.barrier) for place in roles_of(root)] == [(0, 4, 1), (4, 12, 2), (16, 8, 5)]
    assert [place.op.attributes["copies"] for place in roles_of(root)] == [1, 3, 1]
    assert warps_of(root, 4) == 24


def test_a_kernel_without_roles_is_run_by_all_warps() -> None:
    root = function("%m = arith.addi %n, %n : i32")
    assert (roles_of(root), warps_of(root, 8)) == ([], 8)


@pytest.mark.parametrize(
    "text",
    [group(role(16, 1, 24)), group(role(4, 1, 256)), "", group(role(4), role(4, 2)), group(role(4, 1, 40), role(4, 2, 232))],
)
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
        (group(role(4, 1, 100)), "a role has 100 registers a thread, which is no multiple of 8 from 24 to 256"),
        (group(role(4, 1, 16)), "a role has 16 registers a thread, which is no multiple of 8 from 24 to 256"),
        (group(role(16, 2), role(1)), "the roles have 36 warps together, a block has at most 32"),
    ],
)
def test_roles_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        check_roles(function(text))
