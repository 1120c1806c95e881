"""Patterns of structured control flow: branches that are known, loops of no or one trip, values that loops only pass on."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Operation, Region, Value
from kernelpack.ir.dialect import is_pure
from kernelpack.ir.rewrite import Pattern, Rewriter
from kernelpack.ir.types import I1, TensorType
from kernelpack.ir.views import For, If, While, erase_slots
from kernelpack.passes.canonicalize.arithmetic import constant_of

# ---- scf.if ----


def known_branch(op: Operation, rewriter: Rewriter) -> bool:
    known = constant_of(op.operand)
    if known is None:
        return False
    region = op.regions[0 if known else 1]
    rewriter.replace(op, *(rewriter.splice(region.block) if region.blocks else ()))
    return True


def condition_inside_branch(op: Operation, rewriter: Rewriter) -> bool:
    """In the branches of an if, its condition is known."""
    condition, changed = op.operand, False
    for region, known in zip(op.regions, (True, False), strict=True):
        inside = [(user, index) for user, index in condition.uses if region.blocks and is_inside(user, region)]
        if inside:
            value = rewriter.constant(known, I1)
            for user, index in inside:
                user.set_operand(index, value)
                rewriter.touch(user)
            changed = True
    return changed


def same_in_both_branches(op: Operation, rewriter: Rewriter) -> bool:
    """A result that both branches yield from outside is that value, or a choice between two scalars."""
    if not op.results:
        return False
    changed = False
    for result, slot in zip(op.results, If.of(op).chosen, strict=True):
        yes, no = slot.source_values()
        if not result.uses or any(is_inside_of(value, op) for value in (yes, no)):
            continue
        if yes is no:
            rewriter.replace_uses(result, yes)
            changed = True
        elif not isinstance(result.type, TensorType) and all(len(region.block.operations) == 1 for region in op.regions):
            rewriter.replace_uses(result, rewriter.value("arith.select", [op.operand, yes, no]))
            changed = True
    return changed


def same_with_other_values(op: Operation, rewriter: Rewriter) -> bool:
    """Branches that do the same with different values, such as loads from one tensor or another, are done once, with values that are chosen.

    Only scalars are chosen: a tile of pointers, for one, is made again of the scalars that it is made of.
    """
    if any(not region.blocks or len(region.block.operations) < 2 for region in op.regions):
        return False
    yes, no = (region.block.operations for region in op.regions)
    if len(yes) != len(no) or not all(map(_is_alike, yes, no)):
        return False
    inside: dict[Value, Value] = {}
    choices: list[tuple[Operation, int, Value, Value]] = []
    for one, other in zip(yes, no, strict=True):
        pairs = enumerate(zip(one.operands, other.operands, strict=True))
        choices += [(one, index, a, b) for index, (a, b) in pairs if inside.get(a) is not b]
        inside.update(zip(one.results, other.results, strict=True))
    if any(a in inside or is_inside_of(b, op) or not _can_choose(a, b, set()) for _, _, a, b in choices):
        return False
    made: dict[tuple[Value, Value], Value] = {}
    for one, index, a, b in choices:
        one.set_operand(index, _chosen(op.operand, a, b, rewriter, made))
    rewriter.replace(op, *rewriter.splice(op.regions[0].block))
    return True


def _is_alike(one: Operation, other: Operation) -> bool:
    """Whether two operations do the same, whatever their operands are."""
    same = one.name == other.name and one.attributes == other.attributes and not one.regions and not other.regions
    kinds = [[value.type for value in (*op.operands, *op.results)] for op in (one, other)]
    return same and kinds[0] == kinds[1]


def _can_choose(yes: Value, no: Value, seen: set[tuple[Value, Value]]) -> bool:
    """Whether one of two values can be chosen by choosing scalars: tiles must be made in the same way."""
    if yes is no or not isinstance(yes.type, TensorType) or (yes, no) in seen:
        return True
    seen.add((yes, no))
    one, other = yes.defining_op, no.defining_op
    if one is None or other is None or not _is_alike(one, other) or len(one.results) != 1 or not is_pure(one):
        return False
    return all(_can_choose(a, b, seen) for a, b in zip(one.operands, other.operands, strict=True))


def _chosen(condition: Value, yes: Value, no: Value, rewriter: Rewriter, made: dict[tuple[Value, Value], Value]) -> Value:
    if yes is no:
        return yes
    if (yes, no) not in made:
        one, other = yes.defining_op, no.defining_op
        if one is None or other is None or not isinstance(yes.type, TensorType):
            made[yes, no] = rewriter.value("arith.select", [condition, yes, no])
        else:
            pairs = zip(one.operands, other.operands, strict=True)
            operands = [_chosen(condition, a, b, rewriter, made) for a, b in pairs]
            made[yes, no] = rewriter.value(one.name, operands, one.attributes, yes.type)
    return made[yes, no]


def empty_else(op: Operation, rewriter: Rewriter) -> bool:
    """An else that does nothing is left out."""
    region = op.regions[1]
    if op.results or not region.blocks or len(region.block.operations) > 1:
        return False
    region.block.terminator.erase()
    region.blocks.clear()
    return True


def is_inside_of(value: Value, op: Operation) -> bool:
    """Whether a value is defined inside an operation's regions."""
    definer = value.defining_op
    return definer is not None and any(is_inside(definer, region) for region in op.regions)


def is_inside(op: Operation, region: Region) -> bool:
    """Whether an operation is nested in a region, however deep."""
    while op.parent is not None and op.parent.parent is not None:
        if op.parent.parent is region:
            return True
        outer = op.parent.parent.parent
        if outer is None:
            return False
        op = outer
    return False


# ---- scf.for ----


def trips(op: Operation) -> int | None:
    """Returns how often a loop with constant bounds runs."""
    lower, upper, step = (constant_of(value) for value in For.of(op).bounds)
    if lower is None or upper is None:
        return None
    if upper <= lower:
        return 0
    return None if step is None or step <= 0 else len(range(int(lower), int(upper), int(step)))


def few_trips(op: Operation, rewriter: Rewriter) -> bool:
    """A loop that never runs gives its initial values; one that runs once is its body."""
    count = trips(op)
    if count is None or count > 1:
        return False
    lower, _, _, *initial = op.operands
    rewriter.replace(op, *(initial if count == 0 else rewriter.splice(op.body, [lower, *initial])))
    return True


def unchanging_values(op: Operation, rewriter: Rewriter) -> bool:
    """A value that a loop yields as it came is the initial value, inside and after the loop."""
    for slot in For.of(op).carried:
        initial = slot.initial
        if slot.yielded is slot.argument or slot.yielded is initial:
            rewriter.replace_uses(slot.argument, initial)
            rewriter.replace_uses(slot.result, initial)
            erase_slots([slot])
            return True
    return False


# ---- scf.while ----


def while_never(op: Operation, rewriter: Rewriter) -> bool:
    """A condition that is false from the start leaves what comes before it."""
    loop = While.of(op)
    if constant_of(loop.condition) is not False:
        return False
    _, *passed = rewriter.splice(loop.before, op.operands)
    rewriter.replace(op, *passed)
    return True


PATTERNS: dict[str, Sequence[Pattern]] = {
    "scf.if": (known_branch, condition_inside_branch, same_in_both_branches, same_with_other_values, empty_else),
    "scf.for": (few_trips, unchanging_values),
    "scf.while": (while_never,),
}
