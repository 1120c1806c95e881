"""Writes the dispatch tables of an op: for each launch what distinguishes its variants, and the rows among which a call finds one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelpack.backends.base import Backend
from kernelpack.compiled import BOUNDS
from kernelpack.errors import BuildError
from kernelpack.opgen.emit.library import LibraryPlan
from kernelpack.opgen.emit.perfect_hash import perfect_hash
from kernelpack.opgen.emit.print_cpp import braces, is_flag, quoted
from kernelpack.opgen.emit.print_tuning import tuning_tables
from kernelpack.opgen.variants.dispatch import Assumption, Assumptions, mask_of
from kernelpack.opgen.variants.plan import Axis, KernelVariant, LaunchPlan, OpPlan
from kernelpack.target import Target

_MOST_ASSUMPTIONS = 64
"""Bits of a word."""


class DispatchTables:
    """The dispatch tables of one op."""

    def __init__(self, library: LibraryPlan, plan: OpPlan) -> None:
        self.library = library
        self.plan = plan
        self.tests = library.tests
        self.position = {
            pack.entry: index for backend in library.backends for index, pack in enumerate(library.packs_of(backend))
        }
        self.assumptions = {launch.launch.index: self._assumptions(launch) for launch in plan.launches}

    def assumed(self, variant: KernelVariant) -> Assumption:
        """Returns what guards a variant: what its pack says that its code relies on."""
        return self.library.packs[variant.entry].facts

    def _assumptions(self, launch: LaunchPlan) -> Assumptions:
        found = Assumptions.of((self.assumed(row.variant) for row in launch.rows()), self.tests)
        if len(found.sets) > _MOST_ASSUMPTIONS:
            raise BuildError(
                f"the variants of {launch.launch.kernel_name} assume {len(found.sets)} different sets of facts; a launch tells "
                f"{_MOST_ASSUMPTIONS} apart",
                location=launch.launch.location,
                cure="list fewer entries in specialize=",
            )
        return found

    def text(self) -> str:
        """Returns the tables of every launch."""
        parts = [text for launch in self.plan.launches for text in self._launch(launch)]
        sites = ", ".join(f"&kLaunch{launch.launch.index}" for launch in self.plan.launches)
        return "\n".join([*parts, f"const kp::LaunchSite* const kSites[] = {{{sites}}};"])

    def _launch(self, launch: LaunchPlan) -> list[str]:
        number, kernel = launch.launch.index, launch.launch.kernel_name
        lines = [f"// Launch {number}: {kernel}, line {launch.launch.location.line}."]
        if launch.axes:
            order = ", ".join(f"{axis.name} ({axis.size})" for axis in launch.axes)
            lines.append(f"// Axes: {order}; the last one fastest.")
        lines += [_value_axis(number, axis) for axis in launch.axes if axis.value is not None and not is_flag(axis)]
        rows = _Rows(self, launch)
        tables = [self._backend(rows, backend) for backend in self.library.backends]
        products = any(self.library.packs[row.variant.entry].metadata.get("products") for row in launch.rows())
        names = ", ".join(f"kTargets{number}_{backend.name}" for backend in self.library.backends)
        assumed = [quoted(", ".join(map(str, facts))) for facts in self.assumptions[number].sets]
        return [
            *lines,
            *rows.shared(),
            *tables,
            *tuning_tables(launch, self.library.backends, self.library.targets),
            f"const kp::TargetVariants* const kBackends{number}[] = {{{names}}};",
            "\n".join([f"const char* const kAssumptions{number}[] = {{", *(f"    {text}," for text in assumed), "};"]),
            f'const kp::LaunchSite kLaunch{number} = {{"{kernel}", {{{str(products).lower()}}}, kBackends{number}, kAssumptions{number},'
            f" {len(assumed)}, {'nullptr' if launch.key is None else f'&kTuning{number}'}}};",
        ]

    def _backend(self, rows: _Rows, backend: Backend) -> str:
        """Returns the points and variants of a backend's targets."""
        number = rows.launch.launch.index
        lines, entries = [], []
        for target in self.library.targets[backend.name]:
            points, variants = rows.of(target, backend)
            suffix = f"{number}_{target.slug}"
            if variants:
                lines.append(f"const kp::Point kPoints{suffix}[] = {braces(points)};")
                lines.append("\n".join([f"const kp::VariantRow kVariants{suffix}[] = {{", *variants, "};"]))
                kernels = f"{self.library.namespace}_kernels::{backend.name}"
                lists = f"{kernels}, kParameters{number}, kMetas{number}"
                entries.append(f"{{kPoints{suffix}, kVariants{suffix}, {len(variants)}, {lists}}}")
            else:
                lines.append(f"const kp::Point kPoints{suffix}[{len(points)}] = {{}};  // nothing was built for {target}")
                entries.append(f"{{kPoints{suffix}, nullptr, 0, nullptr, nullptr, nullptr}}")
        return "\n".join([*lines, f"const kp::TargetVariants kTargets{number}_{backend.name}[] = {braces(entries)};"])


@dataclass
class _Rows:
    """The rows of a launch's variants, and the lists that they share."""

    tables: DispatchTables
    launch: LaunchPlan

    def __post_init__(self) -> None:
        packs = self.tables.library.packs
        slots = [slot.parameter for slot in self.launch.slots]
        if self.tables.library.checked:  # csrc/ops/checked.h
            slots += [f"{slot.parameter}.{bound}" for slot in self.launch.slots if slot.kind == "pointer" for bound in BOUNDS]
        slot_of = {name: index for index, name in enumerate(slots)}
        self.slots = {
            row.variant.entry: tuple(slot_of[parameter.name] for parameter in packs[row.variant.entry].parameters)
            for row in self.launch.rows()
        }
        everything = tuple(range(len(slots)))
        some = [slots for slots in dict.fromkeys(self.slots.values()) if slots != everything]
        self.parameters = {slots: index for index, slots in enumerate([everything, *some])}
        self.metas = {meta: index for index, meta in enumerate(dict.fromkeys(row.meta for row in self.launch.rows()))}

    def shared(self) -> list[str]:
        """Returns the lists of slots and of constexprs that grids ask for."""
        number = self.launch.launch.index
        lines, lists, metas = [], [], []
        for slots, index in self.parameters.items():
            name = f"kParameters{number}_{index}"
            if index:
                lines.append(f"const uint8_t {name}[] = {{{', '.join(map(str, slots)) or 0}}};")
            lists.append(f"{{{name if index else 'nullptr'}, {len(slots)}}}")
        for meta, index in self.metas.items():
            name = f"kMeta{number}_{index}"
            if meta:
                lines.append(f"const int64_t {name}[] = {{{', '.join(map(str, meta))}}};")
            metas.append(name if meta else "nullptr")
        lines.append(f"const kp::ParameterList kParameters{number}[] = {braces(lists)};")
        return [*lines, f"const int64_t* const kMetas{number}[] = {braces(metas or ['nullptr'])};"]

    def of(self, target: Target, backend: Backend) -> tuple[list[str], list[str]]:
        """Returns a target's points and variants."""
        library = self.tables.library
        assumptions = self.tables.assumptions[self.launch.launch.index]
        points: list[str] = []
        variants: list[str] = []
        for point in self.launch.points[target]:
            rows = {assumptions.bit(self.tables.assumed(row.variant)): row for row in reversed(point)}
            points.append(f"{{{mask_of(list(rows)):#x}, {len(variants)}}}")
            for _, row in sorted(rows.items()):
                pack = library.packs[row.variant.entry]
                places = (self.tables.position[pack.entry], self.parameters[self.slots[pack.entry]], self.metas[row.meta])
                variants.append(f"    {braces(places)},  // {pack.variant}")
        return points, variants


def _value_axis(number: int, axis: Axis) -> str:
    values = [int(value) for value in axis.values]
    found = perfect_hash(values)
    sizes = ", ".join(map(str, (len(values), len(found.displacements), len(found.slots))))
    rows: Sequence[Iterable[object]] = (values, found.displacements, found.slots)
    listed, displacements, slots = map(braces, rows)
    return (
        f"const kp::ValueAxis<{sizes}> kLaunch{number}_{axis.name} = {{\n"
        f'    "{axis.name}", {listed}, {found.multiplier:#x}, {displacements}, {slots}}};'
    )
