"""Plans the ops of a library: every point of an op's space, for every target, becomes kernels to compile and a dispatch table."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelpack.backends.base import Backend
from kernelpack.errors import HostFunctionError, KernelpackError
from kernelpack.facts import Fact
from kernelpack.opgen.host.follow import is_tensor_like, reached_launches
from kernelpack.opgen.host.ir import INT, NONE, Launch
from kernelpack.opgen.op import Op
from kernelpack.opgen.stated.config import Fastest
from kernelpack.opgen.stated.space import Space
from kernelpack.opgen.variants.assumptions import Provenance, assumptions
from kernelpack.opgen.variants.binding import Binding, Bound, Point, bind, check_names, number_kind, points_of
from kernelpack.opgen.variants.decisions import Choices
from kernelpack.opgen.variants.plan import Axis, Contest, KernelVariant, LaunchArgument, LaunchPlan, OpPlan, Row
from kernelpack.opgen.variants.read_only import ReadOnly
from kernelpack.target import Target


class OpPlanner:
    """Plans the ops of a library. Equal kernels of several launches are compiled once; names are unique in the library. `checked` kernels
    check their accesses."""

    def __init__(
        self,
        namespace: str,
        targets: Sequence[tuple[Target, Backend]],
        choices: Choices | None = None,
        *,
        checked: bool = False,
    ) -> None:
        self.namespace = namespace
        self.targets = targets
        self.choices = choices or Choices()
        self.checked = checked
        self.contests: list[Contest] = []
        self.variants: dict[tuple[Any, ...], KernelVariant] = {}
        self.uses: dict[str, dict[tuple[str, int], LaunchPlan]] = defaultdict(dict)
        """By a variant's entry: the launches of it, by op and number."""
        self.names: set[tuple[str, Target]] = set()

    def plan(self, op: Op) -> OpPlan:
        """Plans one op. Raises HostFunctionError for constexprs that nothing binds, and launches that no variant reaches."""
        check_names(op)
        provenance = Provenance(op.host)
        plans = tuple(
            LaunchPlan(launch, tuple(_axes(launch, op.space)), tuple(_slots(launch)), _read_only(launch, op, provenance))
            for launch in op.host.launches
        )
        tables = [_TargetTables(self, op, provenance, target, backend) for target, backend in self.targets]
        for combination in op.space.combinations():
            for reached in reached_launches(op.host, combination.dtypes):
                plan = plans[reached.launch.index]
                for point, one in itertools.product(points_of(plan, reached, combination), tables):
                    one.add(plan, point)
        for plan in plans:
            entries = {one.target: one.entries[plan.launch.index] for one in tables}
            plan.config_count = max((len(entry) for found in entries.values() for entry in found.values()), default=1)
            for target, found in entries.items():
                plan.points[target] = []
                for number in range(math.prod(axis.size for axis in plan.axes)):
                    entry = found.get(number, [[]])
                    plan.points[target] += [*entry, *[entry[0]] * (plan.config_count - len(entry))]
            # a launch that configs leave out for all of these targets is for others: under x.is_cuda, in a library for CPUs
            if not plan.left_out and not any(plan.rows()):
                raise HostFunctionError(
                    f"no combination of variants reaches this launch of {plan.launch.kernel_name}",
                    location=plan.launch.location,
                )
        return OpPlan(op.host, op.space, op.location, plans)

    def used_variants(self) -> list[KernelVariant]:
        """Returns the library's variants, each with everything that launches it."""
        found = []
        for variant in self.variants.values():
            uses = self.uses[variant.entry]
            read_only = tuple(one for plan in uses.values() for one in plan.read_only)
            found.append(replace(variant, ops=tuple(dict.fromkeys(op for op, _ in uses)), read_only=read_only))
        return sorted(found, key=lambda variant: (str(variant.target), variant.name))

    def add(self, wanted: KernelVariant) -> KernelVariant:
        """Returns the library's variant that is compiled as `wanted`: a known one, or this one with a free name and an entry."""
        values = tuple((name, repr(value)) for name, value in sorted(wanted.constexprs.items()))
        signature = tuple(wanted.signature.items())
        parts = repr(wanted.parts)
        key = (id(wanted.kernel), wanted.target, signature, values, parts, wanted.options, wanted.facts, wanted.constants)
        if key not in self.variants:
            name, count = wanted.name, 1
            while (name, wanted.target) in self.names:
                count += 1
                stem, _, suffix = wanted.name.rpartition(".")
                name = f"{stem}-{count}.{suffix}"
            self.names.add((name, wanted.target))
            entry = re.sub(r"\W", "_", f"{self.namespace}_{name}_{wanted.target.slug}")
            self.variants[key] = replace(wanted, name=name, entry=entry)
        return self.variants[key]


@dataclass
class _TargetTables:
    """The tables of an op's launches for one target: by launch and point, the rows of each config that calls may get."""

    planner: OpPlanner
    op: Op
    provenance: Provenance
    target: Target
    backend: Backend
    entries: dict[int, dict[int, list[list[Row]]]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, plan: LaunchPlan, point: Point) -> None:
        """Adds what is built for a point, if the configs build it for this target."""
        plain = bind(self.op, point, self.target, specialized=False)
        if plain is None:
            plan.left_out = True
            return
        special = bind(self.op, point, self.target, specialized=True) if plain.config(0).specialize else None
        fastest = (special and special.fastest) or plain.fastest
        entries = self.entries[plan.launch.index]
        if fastest is None:
            entries[point.number] = [self._rows(plan, point.name, 0, plain, special)]
            return
        _note_key(plan, fastest, self.op)
        decision = self.planner.choices.decide(self.op.name, self.op.location.file, self.target, point.name, fastest)
        plan.decisions.setdefault(self.target, {})[point.number] = decision
        rows = [self._rows(plan, f"{point.name}-c{number}", number, plain, special) for number in decision.configs]
        entries[point.number] = rows
        self.planner.contests.append(
            Contest(self.op.name, self.target, point.name, point.passed, fastest, tuple(map(tuple, rows)))
        )

    def _rows(self, plan: LaunchPlan, name: str, number: int, plain: Binding, special: Binding | None) -> list[Row]:
        """Returns the variants of a point with config `number`: the one that assumes nothing, and the specialised ones."""
        rows = [self._row(plan, f"{name}.any", plain, number)]
        if special is None or not plain.config(number).specialize:
            return rows
        bound = special.bound(number)
        for count, specialization in enumerate(self.op.specialize, 1):
            facts, constants = assumptions(
                plan.launch, bound.signature, specialization, self.provenance, self.backend.properties()
            )
            if facts or constants:
                suffix = "aligned" if count == 1 else f"aligned{count}"
                row = self._row(plan, f"{name}.{suffix}", special, number, facts, constants, rows[0].variant.entry)
                if all(other.variant is not row.variant for other in rows):
                    rows.append(row)
        return rows

    def _row(
        self,
        plan: LaunchPlan,
        name: str,
        binding: Binding,
        number: int,
        facts: tuple[Fact, ...] = (),
        constants: tuple[Fact, ...] = (),
        plain: str | None = None,
    ) -> Row:
        bound = binding.bound(number)
        values = {fact.parameter: fact.value for fact in constants}
        variant = self.planner.add(
            KernelVariant(
                name,
                (self.op.name,),
                plan.launch.kernel,
                self.target,
                {name: kind for name, kind in bound.signature.items() if name not in values},
                {**bound.constexprs, **values},
                replace(bound.options, checked=True) if self.planner.checked else bound.options,
                facts,
                constants,
                plain=plain,
                parts=plan.launch.parts,
                apart=tuple(
                    target
                    for target in self.backend.targets()
                    if target != self.target and self._differs(binding, number, bound, target)
                ),
            )
        )
        self.planner.uses[variant.entry][self.op.name, plan.launch.index] = plan
        return Row(variant, tuple(int(bound.constexprs[name]) for name in plan.launch.meta_names))

    def _differs(self, binding: Binding, number: int, bound: Bound, target: Target) -> bool:
        """Whether config `number`, which binds a point to `bound`, binds it otherwise for another target. That one need not be built, and
        then need not have a config."""
        try:
            other = bind(self.op, binding.point, target, specialized=binding.specialized)
            return other is not None and number < other.count and other.bound(number) != bound
        except KernelpackError:
            return False


def _axes(launch: Launch, space: Space) -> Iterator[Axis]:
    """Yields the axes of a launch's table: those of dtypes, then the constexprs that the host function passes, then what it passes
    for the choice of a config alone."""
    for name, entries in space.dtypes.items():
        if space.has_axis(name):
            yield Axis(name, len(entries))
    parameters = [parameter.name for parameter in launch.parameters]
    for name in dict.fromkeys([*parameters, *space.constexprs]):
        if name in space.constexprs and name in launch.arguments:
            values = space.constexprs[name]
            yield Axis(name, len(values), values, launch.arguments[name])


def _read_only(launch: Launch, op: Op, provenance: Provenance) -> tuple[ReadOnly, ...]:
    """Returns the parameters that get arguments which the op's schema does not mark as written to."""
    return tuple(
        ReadOnly(parameter, name, op.name, launch.location)
        for parameter, value in launch.arguments.items()
        if is_tensor_like(value)
        for name in sorted(provenance.possible(value))
        if not op.schema.argument(name).mutated
    )


def _slots(launch: Launch) -> Iterator[LaunchArgument]:
    """Yields the run-time parameters that some variant of a launch has."""
    for parameter in launch.parameters:
        if parameter.is_constexpr:
            continue
        value = launch.arguments[parameter.name]
        if value.type != NONE:
            kind = "pointer" if is_tensor_like(value) else number_kind(parameter, value, launch)
            yield LaunchArgument(parameter.name, kind, value)


def _note_key(plan: LaunchPlan, fastest: Fastest, op: Op) -> None:
    """Notes by what a launch's configs are chosen. Raises HostFunctionError for a key that a call cannot choose by."""
    if plan.key not in (None, fastest.key):
        keys = ", and by ".join(", ".join(key) or "nothing" for key in sorted({plan.key or (), fastest.key}))
        raise HostFunctionError(
            f"the configs of {plan.launch.kernel_name} are chosen by {keys}",
            location=op.location,
            cure="give all kp.fastest of a launch one key",
        )
    plan.key = fastest.key
    numbers = [slot.parameter for slot in plan.slots if slot.value.type == INT]
    for name in fastest.key:
        if name not in numbers:
            raise HostFunctionError(
                f"kp.fastest: key names {name!r}, which is no run-time integer of {plan.launch.kernel_name}",
                location=op.location,
                cure=f"its run-time integers are {', '.join(numbers) or 'none'}",
            )
