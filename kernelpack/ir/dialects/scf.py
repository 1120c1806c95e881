"""scf: structured control flow. Loops carry values; branches yield them."""

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import Dialect, Trait, row
from kernelpack.ir.types import I1


def _ends_in(op: Operation, region: int, name: str) -> str | None:
    return None if op.regions[region].block.terminator.name == name else f"region {region} must end in {name}"


def _check_for(op: Operation) -> str | None:
    if wrong := _ends_in(op, 0, "scf.yield"):
        return wrong
    lower, upper, step, *initial = op.operands
    if not lower.type == upper.type == step.type:
        return "lower bound, upper bound and step must be of one type"
    arguments = [argument.type for argument in op.body.arguments]
    carried = [value.type for value in initial]
    if arguments != [lower.type, *carried]:
        return "the body must take the induction variable and the carried values"
    if [result.type for result in op.results] != carried:
        return "results and carried values differ in type"
    yielded = [value.type for value in op.body.terminator.operands]
    return None if yielded == carried else "yielded and carried values differ in type"


def _check_if(op: Operation) -> str | None:
    if op.operands[0].type != I1:
        return "the condition must be i1"
    if not op.regions[1].blocks and op.results:
        return "an if with results needs an else"
    for index, region in enumerate(op.regions):
        if not region.blocks:
            continue
        if wrong := _ends_in(op, index, "scf.yield"):
            return wrong
        if region.block.arguments:
            return "branches take no arguments"
        if [value.type for value in region.block.terminator.operands] != [result.type for result in op.results]:
            return "a branch must yield the types of the results"
    return None


def _check_while(op: Operation) -> str | None:
    if wrong := _ends_in(op, 0, "scf.condition") or _ends_in(op, 1, "scf.yield"):
        return wrong
    before, after = (region.block for region in op.regions)
    if [argument.type for argument in before.arguments] != [value.type for value in op.operands]:
        return "the condition block must take the initial values"
    passed = [value.type for value in before.terminator.operands[1:]]
    if passed != [argument.type for argument in after.arguments] or passed != [result.type for result in op.results]:
        return "the condition must pass on what the body takes and the loop gives"
    yielded = [value.type for value in after.terminator.operands]
    return None if yielded == [value.type for value in op.operands] else "the body must yield what the condition takes"


SCF = Dialect(
    "scf",
    [
        # regions[0].block arguments: induction variable, then the carried values
        row(
            "scf.for",
            "lower: int_scalar, upper: int_scalar, step: int_scalar, initial*",
            results=None,
            regions=1,
            traits=[Trait.PURE],
            check=_check_for,
        ),
        # regions: then, else; the else region may be empty
        row(
            "scf.if",
            "condition: bool",
            results=None,
            regions=2,
            optional_regions=1,
            traits=[Trait.PURE],
            check=_check_if,
        ),
        # regions: condition (ends in scf.condition), body
        row("scf.while", "initial*", results=None, regions=2, traits=[], check=_check_while),
        row(
            "scf.condition",
            "condition: bool, values*",
            results=0,
            traits=[Trait.TERMINATOR],
            check=lambda op: None if op.operands[0].type == I1 else "the condition must be i1",
        ),
        row("scf.yield", "values*", results=0, traits=[Trait.TERMINATOR], format="($values : type($values))?"),
    ],
)
