"""Every barrier, wait, fence and mask of every op is removed, one at a time: the emulator reports it, or the table says why it need
not."""

from __future__ import annotations

import itertools
import linecache
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpack.errors import EmulationError
from kernelpack.simt import SCHEDULES, Removable
from tests.ops.functional import functional, module_of, results_of
from tests.ops.layouts import steps_apart
from tests.simt.emulated_ops import Run, call
from tests.simt.fault_cases import FaultCase, fault_cases

ROOT = Path(__file__).parents[2]
TARGETS = ("cuda:sm_80", "cuda:sm_90a")
SAMPLE = ("matmul", "mha", "softmax", "layer_norm")
"""`make test` runs a case of each of these ops."""


@dataclass(frozen=True)
class Argued:
    """Removals that nothing shows, and why they are harmless: up to `most` in one kernel of `op`, of operations of a `kind` that
    come from a source line with `text` in it."""

    op: str
    target: str
    kind: str
    text: str
    most: int
    why: str


ONE_WARPGROUP = "one warpgroup: whoever overwrites a tile has itself waited for the products that read it"
LATER_FENCE = "a later fence of every thread, in front of the same products, orders these writes too"
AFTER_LOOP = LATER_FENCE + "; after the loop no product reads any more"
LAST_TILES = "after a program's last block of queries, whose keys are few here, nothing is loaded into these tiles again"
EXCHANGED_BIAS = "the bias is exchanged where rows of a lay that only the warpgroup of its writers read, and they have waited for its products"
IN_FLIGHT = "in the loop the sums stay in flight from product to product, which needs no fence (PTX ISA, wgmma.fence)"
REDUCTIONS = "barriers of the reductions beside it order the same accesses; the language does not promise these"
EXPLICIT = "an explicit barrier before or after it orders the same accesses"
SURVIVORS = (
    Argued("sample", "cuda", "barrier", "tl.debug_barrier()", 8, REDUCTIONS),
    Argued("sample", "cuda", "barrier", "wanted = inside & (tl.load(row.peaks", 2, EXPLICIT),
    Argued("sample", "cuda", "barrier", "sums = sum_so_far + tl.cumsum(", 2, EXPLICIT),
    Argued(
        "sample", "cuda", "mask", "return tl.load(row.values + group", 1,
        "of equal values: sums of groups after the list's end are not stored, and the sum of all is not used",
    ),
    Argued("scaled_matmul", "cuda:sm_90a", "fence", "acc = hopper.async_dot(", 1, IN_FLIGHT),
    Argued("scaled_matmul", "cuda:sm_90a", "fence", "x = tl.load(a_tile", 1, LATER_FENCE),
    Argued("scaled_matmul", "cuda:sm_90a", "barrier", "acc += tl.load(epilogue.bias", 1, EXCHANGED_BIAS),
    Argued("scaled_matmul", "cuda:sm_90a", "fence", "for k in range(", 1, AFTER_LOOP),
    Argued("matmul", "cuda:sm_90a", "fence", "x = tl.load(a_tile", 1, LATER_FENCE),
    Argued(
        "matmul", "cuda:sm_90a", "barrier", "for k in range(", 1,
        "with few rows, b's tile is stored after the copies of a's, and its barrier orders both; " + ONE_WARPGROUP,
    ),
    Argued("matmul", "cuda:sm_90a", "barrier", "x = tl.load(a_tile", 1, ONE_WARPGROUP),
    Argued("matmul", "cuda:sm_90a", "fence", "for k in range(", 2, AFTER_LOOP),
    Argued("matmul", "cuda:sm_90a", "barrier", "acc += tl.load(epilogue.bias", 1, EXCHANGED_BIAS),
    Argued(
        "matmul", "cuda:sm_90a", "barrier", "tl.store(target", 2,
        "with few rows, each warp exchanges its columns of the result where no other has read b's",
    ),
    Argued("matmul", "cuda:sm_90a", "fence", "acc = hopper.async_dot(", 1, IN_FLIGHT),
    Argued(
        "mha", "cuda", "barrier", "return sums.values / tl.where(sums.weights == 0.0", 1,
        "the reductions of the loop have barriers after the product with the keys, whose place the result is exchanged in",
    ),
    Argued(
        "mha", "cuda:sm_80", "barrier", "tl.store(out + rows[:, None]", 1,
        "the result is exchanged where keys were; the barriers around the values' tile stand after the product that read them",
    ),
    Argued(
        "mha", "cuda", "wait", "for n in range(", 1,
        "of the loop without masks; that with masks after it waits for later copies, and copies complete in order",
    ),
    Argued("mha", "cuda", "barrier", "for n in range(", 1, "the barriers of the next loop's reductions order the same accesses"),
    Argued("mha", "cuda:sm_90a", "fence", "q = tl.load(query", 1, LATER_FENCE),
    Argued("mha", "cuda:sm_90a", "fence", "for n in range(", 2, AFTER_LOOP),
    Argued(
        "mha", "cuda:sm_90a", "commit", "values = tl.dot(p.to(v.dtype)", 1,
        "of the first of two loops: the product is committed with the next one, which is waited for before its sums are read",
    ),
    Argued(
        "mha", "cuda:sm_90a", "wait", "values = tl.dot(p.to(v.dtype)", 2,
        "of the product before, in flight from the iteration before: the scores have been waited for since, and with them all that came earlier",
    ),
    Argued("mha", "cuda:sm_90a", "barrier", "k = tl.load(k_tile", 2, ONE_WARPGROUP),
    Argued("mha", "cuda:sm_90a", "barrier", "v = tl.load(v_tile", 2, ONE_WARPGROUP),
    Argued("mha", "cuda:sm_90a", "barrier", "tl.store(out + rows[:, None]", 1, ONE_WARPGROUP),
    Argued("mha", "cuda:sm_90a", "barrier", "hopper.local_store(q_tile, result)", 1, ONE_WARPGROUP),
    Argued(
        "mha", "cuda:sm_90a", "barrier", "hopper.named_barrier_wait(copy", 1,
        "it says which role issues its products first: a matter of speed, not of results",
    ),
    Argued(
        "mha", "cuda:sm_90a", "wait", "hopper.mbarrier_wait(rings.key.full[place.slot], place.phase)", 1,
        "of keys that a role passes over: their values, begun later, are waited for next, and land no sooner in either schedule",
    ),
    Argued("mha", "cuda:sm_90a", "arrival", "hopper.mbarrier_arrive(rings.key.empty[place.slot])", 1, LAST_TILES),
    Argued("mha", "cuda:sm_90a", "arrival", "hopper.mbarrier_arrive(rings.value.empty[previous.slot])", 1, LAST_TILES),
    Argued(
        "mha", "cuda:sm_90a", "fence", "values = hopper.async_dot(weights", 1,
        "weights and sums were written before the fence of the product with the keys, which is issued just before",
    ),
)  # fmt: skip


def _lot(case: FaultCase) -> int:
    return zlib.crc32(case.label.encode())


def test_planted_faults_of_a_sample_are_reported() -> None:
    chosen = [min((case for case in fault_cases() if case.op == op), key=_lot) for op in SAMPLE]
    for number, case in enumerate(chosen):
        _hold_to_the_table(case, TARGETS[number % len(TARGETS)])


@pytest.mark.slow
@pytest.mark.parametrize("case", fault_cases(), ids=lambda case: case.label)
@pytest.mark.parametrize("target", TARGETS)
def test_planted_faults_are_reported(target: str, case: FaultCase) -> None:
    _hold_to_the_table(case, target)


def _hold_to_the_table(case: FaultCase, target: str) -> None:
    unexplained = []
    found: Counter[Argued] = Counter()
    for kind, text, description in survivors(case, target):
        rows = [
            row for row in SURVIVORS
            if row.op == case.op and row.kind == kind and re.match(row.target, target) and row.text in text and found[row] < row.most
        ]  # fmt: skip
        if rows:
            found[rows[0]] += 1
        else:
            unexplained.append(f"{kind}: {description}\n    {text.strip()}")
    assert not unexplained, f"{case.label}, {target}: nothing shows that these are missing\n" + "\n".join(unexplained)


def survivors(case: FaultCase, target: str) -> list[tuple[str, str, str]]:
    """Returns the kind, source line and description of every removal that no call of a case shows."""
    torch.manual_seed(3)
    launches: dict[str, list[Run]] = {}  # by code: calls may be specialised apart and yet run the same
    for make, given in itertools.zip_longest(case.calls, case.names, fillvalue={}):
        args, kwargs = make()
        runs: list[Run] = []

        def emulated(*args: Any, given: Any = given, runs: list[Run] = runs, **kwargs: Any) -> Any:
            result, made = call(target, case.function, args, kwargs, rows=2, given=given)
            runs += made
            return result

        results = results_of(functional(case.op, emulated)(*args, **kwargs))
        wide = [arg.double() if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg for arg in args]
        exact = module_of(case.op).reference(*wide, **kwargs)
        for result, right in zip(results, results_of(exact), strict=True):  # the original does what it is meant to
            if right.element_size() == 1:
                assert int(steps_apart(result, right).max()) <= 1
                continue
            rtol = 0.05 if result.element_size() > 1 else 0.1
            torch.testing.assert_close(result.double(), right.double(), rtol=rtol, atol=0.05, equal_nan=True)
        for run in runs:
            launches.setdefault(run.program.llir, []).append(run)
    found = []
    for runs in launches.values():
        program = runs[0].program
        for fault in program.removable:
            if not any(_shows(run, fault) for run in runs):
                place = program.location(fault.sites[0])
                text = linecache.getline(str(_file(place.file)), place.line) if place is not None else ""
                found.append((fault.kind, text, program.describe(fault.sites[0])))
    return found


def _file(name: str) -> Path:
    """Returns a file that line information names, relative to the folder around its outermost package."""
    return next((folder / name for folder in (ROOT, ROOT / "ops") if (folder / name).exists()), Path(name))


def _shows(run: Run, fault: Removable) -> bool:
    for schedule in SCHEDULES:
        try:
            if not run.again(schedule, fault):
                return True
        except EmulationError:
            return True
    return False
