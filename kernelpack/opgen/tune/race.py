"""Races the configs of ops on this machine's devices: what `kernelpack tune` does."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack.backends.base import Backend
from kernelpack.backends.installed import backend_of, backends
from kernelpack.compiled import CompiledKernel
from kernelpack.dtypes import DType, dtype_of
from kernelpack.errors import BuildError, KernelpackError
from kernelpack.facts import Fact
from kernelpack.files import generated
from kernelpack.opgen.build import BuildPlan, plan_library
from kernelpack.opgen.op import CapturedLaunch, Op, capture
from kernelpack.opgen.sources import check_op_names
from kernelpack.opgen.variants.decisions import (
    AllConfigs,
    Choices,
    PointDecision,
    PointResults,
    Results,
    Sizes,
    config_text,
    read_results,
    tuned_folder,
)
from kernelpack.opgen.variants.plan import Contest, KernelVariant, Row
from kernelpack.opgen.workers.compile import Progress, ProgressCallback, compile_variants
from kernelpack.pack.format import KernelPack
from kernelpack.runtime.loaded import LoadedKernel
from kernelpack.target import Target
from kernelpack.testing import times_of

_ROUNDS = 5
"""Configs are timed in turns, so that a machine that slows down for a while slows all of them down."""
_MILLISECONDS = 12.0
"""How long a config runs in each turn."""
_HOPELESS = 1.5
"""A config this much slower than the fastest of its first turn runs no more."""


@dataclass(frozen=True)
class Race:
    """One call's launch of one point: the fastest config is looked for among those of `contest`."""

    op: Op
    contest: Contest
    sizes: Sizes
    launch: CapturedLaunch

    @property
    def rows(self) -> tuple[Row, ...]:
        """By the number of the config: the row that the built op would choose, which assumes most of what holds."""
        return tuple(best_row(rows, self.launch) for rows in self.contest.rows)


@dataclass(frozen=True)
class Raced:
    """What `tune` did: the files of results, how many races were run now, and how many were known from earlier runs."""

    files: tuple[Path, ...]
    run: int
    known: int
    seconds: float


def tune(
    sources: Sequence[Path | str],
    *,
    targets: Sequence[Target],
    ops: Sequence[str] = (),
    again: bool = False,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
) -> Raced:
    """Races every config of every call that the ops' `tune` functions make, for each target, and keeps the times beside the ops.

    `ops` names those to tune (default: all that have a choice). What earlier runs measured of the same kernels is kept, unless
    `again`. Every race is saved when it ends, so that an interrupted run goes on where it was. Raises KernelpackError.
    """
    started = time.monotonic()
    plan = plan_library(sources, namespace="tune", targets=targets, choices=AllConfigs())
    queue: dict[tuple[Path, str, Sizes], tuple[Results, Race]] = {}
    files: dict[Path, None] = {}
    known: set[tuple[Path, str, Sizes]] = set()
    for op in _wanted(plan, ops):
        for target, backend in plan.targets:
            folder = tuned_folder(op.location.file)
            results = _earlier(op, _device_of(target, backend), target, folder, again)
            file = folder / results.file_name
            generated.check(file)
            files[file] = None
            for race in _races(op, plan, target, backend):
                place = (file, race.contest.name, race.sizes)
                if race.sizes in _times_of(results, race.contest):
                    known.add(place)
                else:
                    queue[place] = results, race
    failures: dict[str, KernelpackError] = {}
    variants = {row.variant.entry: row.variant for _, race in queue.values() for row in race.rows}
    packs, _ = compile_variants(list(variants.values()), jobs=jobs, progress=progress, failures=failures)
    for done, ((file, name, sizes), (results, race)) in enumerate(queue.items()):
        if progress is not None:
            what = f"{name} at {' '.join(map(str, sizes))} for {results.target}"
            progress(Progress(done, len(queue), what, time.monotonic() - started))
        _times_of(results, race.contest)[sizes] = _run(race, packs, failures)
        results.save(file.parent)
    return Raced(tuple(files), len(queue), len(known), time.monotonic() - started)


def decisions(sources: Sequence[Path | str], *, targets: Sequence[Target], ops: Sequence[str] = ()) -> list[PointDecision]:
    """Returns what builds decide for each point that has a choice, from the results beside the ops. Raises KernelpackError."""
    plan = plan_library(sources, namespace="tune", targets=targets, choices=AllConfigs())
    files = {op.name: op.location.file for op in plan.ops}
    wanted = {op.name for op in _wanted(plan, ops)}
    choices = Choices()
    return [
        choices.explain(contest.op, files[contest.op], contest.target, contest.name, contest.fastest)
        for contest in plan.contests
        if contest.op in wanted
    ]


def native_targets() -> list[Target]:
    """Returns the target that fits each kind of device of this machine best."""
    return [device.targets[0] for backend in backends().values() for device in backend.devices()[:1] if device.targets]


def _wanted(plan: BuildPlan, names: Sequence[str]) -> list[Op]:
    """Returns the ops to tune: those that have a choice and say which calls to race."""
    choosing = {contest.op for contest in plan.contests}
    check_op_names(names, (op.name for op in plan.ops))
    found = [op for op in plan.ops if op.name in choosing and (not names or op.name in names)]
    if not found:
        raise BuildError(
            f"nothing to tune: no config of {', '.join(names) or 'these ops'} is a choice",
            cure='write configs={"cpu": kp.fastest([kp.Config(...), ...], key=["rows"])}, or use @kp.autotune',
        )
    return found


def _device_of(target: Target, backend: Backend) -> str:
    """Returns the name of the device of this machine that runs a target."""
    for device in backend.devices():
        if target in device.targets:
            return f"{device.name}, {_threads()}" if backend.device_type == "cpu" else device.name
    here = [f"{device.name} ({device.targets[0]})" for device in backend.devices() if device.targets]
    raise BuildError(
        f"no device of this machine runs {target}; {backend.name} has {', '.join(here) or 'none'}",
        cure="run kernelpack tune on a machine that has one, and commit what it writes beside the ops",
    )


def _threads() -> str:
    """Returns how many threads share a CPU's programs: with one, other blocks are the fastest than with many."""
    import torch

    return f"{torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"


def _earlier(op: Op, device: str, target: Target, folder: Path, again: bool) -> Results:
    """Returns what earlier runs measured on this device."""
    for results in read_results(folder, op.name) if not again else ():
        if (results.device, results.target) == (device, str(target)):
            return results
    return Results(op.name, device, str(target))


def _times_of(results: Results, contest: Contest) -> dict[Sizes, dict[str, float]]:
    """Returns the times of a point by sizes. Those of another source of the kernel or of other configs are dropped."""
    point = results.kernels.get(contest.name)
    source = contest.rows[0][0].variant.kernel.cache_key
    if point is None or (point.key, point.source) != (contest.fastest.key, source):
        point = results.kernels[contest.name] = PointResults(contest.fastest.key, source)
    texts = {config_text(config) for config in contest.fastest.configs}
    for sizes in [sizes for sizes, row in point.times.items() if set(row) != texts]:
        del point.times[sizes]
    return point.times


# -- calls -------------------------------------------------------------------------------------------------------------------


def _races(op: Op, plan: BuildPlan, target: Target, backend: Backend) -> Iterator[Race]:
    """Yields the launches of an op's calls that have a choice, for every combination of dtypes."""
    contests = [contest for contest in plan.contests if contest.op == op.name and contest.target == target]
    if op.tune is None:
        raise BuildError(
            f"{op.name} chooses among configs, but no calls are named to race them with",
            location=op.location,
            cure='give @kp.op a function that yields calls: tune=lambda tensor: [(tensor("x", n, 1024),) for n in (1, 64, 4096)]',
        )
    for combination in op.space.combinations():
        for arguments in op.tune(_maker(combination.dtypes, backend.device_type)):
            with capture() as launches:
                op(*arguments)
            for launch in launches:
                for contest in contests:
                    if _fits(contest, launch):
                        yield Race(op, contest, tuple(launch.arguments[name] for name in contest.fastest.key), launch)


def _maker(dtypes: Mapping[str, DType | None], device: str) -> Callable[..., Any]:
    """Returns the function that makes the tensors of calls: `tensor("x", 4, 1024)` has the dtype that x has now."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def tensor(name: str, *shape: int) -> Any:
        if name not in dtypes:
            raise BuildError(f"tune asks for a tensor {name!r}", cure=f"the op's tensors are {', '.join(dtypes)}")
        dtype = dtypes[name]
        if dtype is None:
            return None
        kind = getattr(torch, dtype.name)
        made = (
            torch.randn(shape, generator=generator)
            if kind.is_floating_point
            else torch.randint(0, 2, shape, generator=generator)
        )
        return made.to(device=device, dtype=kind)

    return tensor


def _fits(contest: Contest, launch: CapturedLaunch) -> bool:
    """Whether a call's launch is of a point: the same kernel, dtypes and values of its axes."""
    variant = contest.rows[0][0].variant
    return launch.kernel is variant.kernel and all(
        _fits_argument(contest, variant.signature, name, value) for name, value in launch.arguments.items()
    )


def _fits_argument(contest: Contest, signature: Mapping[str, str], name: str, value: Any) -> bool:
    if name in contest.passed:
        known = contest.passed[name]
        return bool(known == (dtype_of(value) if isinstance(known, DType) else value))
    kind = signature[name]
    if not kind.startswith("*"):
        return isinstance(value, (int, float))
    dtype = dtype_of(value.dtype) if hasattr(value, "data_ptr") else None
    return dtype is not None and kind == f"*{dtype.language}"


# -- races -------------------------------------------------------------------------------------------------------------------


def _run(race: Race, packs: Mapping[str, KernelPack], failures: Mapping[str, KernelpackError]) -> dict[str, float]:
    """Returns the seconds of every config, by its text; infinite for those that this device cannot run."""
    calls: dict[int, Callable[[], None]] = {}
    problems = [failures[row.variant.entry] for row in race.rows if row.variant.entry in failures]
    for number, row in enumerate(race.rows):
        pack = packs.get(row.variant.entry) or packs.get(row.variant.plain or "")  # the plain one, where facts changed nothing
        if pack is not None:
            try:
                call = _call(pack, row.variant, race.launch)
                call()
                calls[number] = call
            except KernelpackError as problem:  # e.g. more shared memory than the device has
                problems.append(problem)
    if not calls:
        raise problems[0]
    times = _time_in_turns(calls, backend_of(race.contest.target).device_type)
    return {config_text(config): times.get(number, math.inf) for number, config in enumerate(race.contest.fastest.configs)}


def best_row(rows: Sequence[Row], launch: CapturedLaunch) -> Row:
    """Returns the row of a point that the built op would choose for a launch: the one that assumes most of what holds."""
    tests = backend_of(rows[0].variant.target).tests()

    def holds(fact: Fact) -> bool:
        value, test = launch.arguments[fact.parameter], tests[fact.property]
        number = value if not hasattr(value, "data_ptr") else _reach(value) if test.of_reach else value.data_ptr()
        return test.holds(number, fact.value)

    fitting = [row for row in rows if all(map(holds, row.variant.assumed))]
    return max(fitting, key=lambda row: len(row.variant.assumed))


def _reach(tensor: Any) -> int:
    """Returns how many bytes lie from a tensor's first element to its end."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())


def _call(pack: KernelPack, variant: KernelVariant, launch: CapturedLaunch) -> Callable[[], None]:
    """Returns a function that launches a kernel as the built op does."""
    kernel = CompiledKernel(
        pack.symbol, pack.target, pack.options, pack.parameters, pack.facts, pack.image_kind, pack.image, dict(pack.metadata),
        descriptors=pack.descriptors,
    )  # fmt: skip
    loaded = LoadedKernel(kernel, backend_of(pack.target).open(kernel))
    grid = launch.grid({**launch.arguments, **variant.constexprs}) if callable(launch.grid) else launch.grid
    extents = (*(grid if isinstance(grid, (tuple, list)) else (grid,)), 1, 1)[:3]
    values = [launch.arguments[parameter.name] for parameter in pack.parameters]
    return lambda: loaded.launch(extents, values)


def _time_in_turns(calls: Mapping[int, Callable[[], None]], device: str) -> dict[int, float]:
    """Returns each call's seconds: the median of its turns."""
    once = {number: times_of(call, 1, device)[0] for number, call in calls.items()}
    turns: dict[int, list[float]] = {number: [] for number in calls}
    for _ in range(_ROUNDS):
        fastest = min((times[0] for times in turns.values() if times), default=math.inf)
        for number, call in calls.items():
            if turns[number] and turns[number][0] > fastest * _HOPELESS:
                continue
            count = max(1, int(_MILLISECONDS / max(once[number], 1e-3)))
            turns[number].append(statistics.median(times_of(call, count, device)))
    return {number: statistics.median(times) * 1e-3 for number, times in turns.items()}
