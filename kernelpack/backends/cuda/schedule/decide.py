"""Decides everything of a function's loops, before any of them is rewritten."""

from __future__ import annotations

from collections.abc import Mapping

from kernelpack.backends.cuda.schedule.descriptor_loops import schedule_descriptor_loops
from kernelpack.backends.cuda.schedule.loop_schedule import LoopSchedule, Products, Schedule
from kernelpack.backends.cuda.schedule.pointer_loops import schedule_pointer_loops
from kernelpack.backends.cuda.schedule.schedule_roles import schedule_roles
from kernelpack.ir.core import Operation, Value


def decide(
    function: Operation,
    num_warps: int,
    num_stages: int,
    bases: Mapping[Value, str],
    shared_bytes: int,
    rotated: Mapping[Operation, Products],
    *,
    may_have_roles: bool,
) -> Schedule:
    """Returns the schedule of a ttgir function, the last loop first: what starts before a loop may stand before an earlier one.

    Loops that load through pointers come first. Without any, a warp of its own may copy what is loaded through descriptors; where it does
    not, loops do. `bases` names the tensors of arguments that are descriptors, `rotated` what products of rotated loops do.
    """
    loops = schedule_pointer_loops(function, num_stages, bases, shared_bytes)
    roles = None
    if may_have_roles and not loops:
        roles = schedule_roles(function, num_warps, num_stages, bases, shared_bytes, rotated)
    if roles is None:
        loops += schedule_descriptor_loops(function, num_stages, bases, shared_bytes, rotated, loops)
    known = {schedule.loop for schedule in loops} | ({*roles.around} if roles is not None else set())
    loops += [LoopSchedule(loop, products=products) for loop, products in rotated.items() if loop not in known]
    order = {op: number for number, op in enumerate(function.walk())}
    return Schedule(sorted(loops, key=lambda schedule: -order[schedule.loop]), roles)
