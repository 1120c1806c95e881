"""Which operations are in which role, how many groups of warps run them, and which warps tiles are spread over."""

from __future__ import annotations

from kernelpack.backends.gpu.facts.roles import copies_of, role_of, roles, scopes
from tests.backends.gpu.role_texts import function, group, role


def test_a_kernel_without_roles_is_one_scope_of_all_warps() -> None:
    root = function("%m = arith.addi %n, %n : i32")
    assert (list(roles(root)), scopes(root, 8)) == ([], [(root, 8)])
    (add, _) = root.body.operations
    assert (role_of(add), copies_of(add)) == (None, 1)


def test_each_role_is_a_scope_of_its_own_warps() -> None:
    root = function(group(role(1), role(4, 3), role(8)))
    assert [(scope.name, warps) for scope, warps in scopes(root, 4)] == [("ttg.role", 1), ("ttg.role", 4), ("ttg.role", 8)]


def test_an_operation_of_a_role_knows_its_role_and_how_many_run_it() -> None:
    root = function(group(role(1), role(4, 3)))
    inner = [op for op in root.walk() if op.name == "arith.addi"]
    assert [copies_of(op) for op in inner] == [1, 3]
    assert [role_of(op) for op in inner] == list(roles(root))
