"""One source file of kernels in the Triton language, compiled by kernelpack and by Triton: the speed of the code, and compile times."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

import kernelpack
import kernelpack.language
from benchmarks.measure import DTYPES, OURS, Case, Prepared, Result, measure, processes
from benchmarks.report import Row, Table, case_arguments, chosen, write_json
from benchmarks.same_source_problems import Problem, Problems
from kernelpack.errors import KernelpackError

PEER = "triton"
SOURCE = Path(__file__).with_name("same_source_kernels.py")


@contextlib.contextmanager
def _instead_of_triton() -> Iterator[None]:
    """While this lasts, `import triton` gives kernelpack. What else is imported meanwhile stays."""
    names = {"triton": kernelpack, "triton.language": kernelpack.language}
    known = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.modules.update(names)
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(known)


def load_kernels(compiler: str, source: Path = SOURCE) -> ModuleType:
    """Runs a source file with Triton, or with kernelpack in Triton's place."""
    name = f"{source.stem}_by_{compiler}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with _instead_of_triton() if compiler == OURS else contextlib.nullcontext():
            spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def cases(device: str, quick: bool) -> Sequence[Case]:
    found: list[Case] = []

    def bandwidth(problem: str, dtype: str, moved: float, *extents: Any) -> None:
        add(problem, dtype, "GB/s", moved * DTYPES[dtype].itemsize / 1e9, extents)

    def rate(problem: str, dtype: str, operations: float, *extents: Any) -> None:
        add(problem, dtype, "TFLOP/s", operations / 1e12, extents)

    def add(problem: str, dtype: str, unit: str, work: float, extents: tuple[Any, ...]) -> None:
        sizes = "x".join(map(str, extents)) if problem != "matmul_grouped" else f"of {len(extents)}"
        found.append(
            Case(
                f"{problem} {dtype} {sizes}", unit, work, device, (PEER,), graph=True,
                arguments={"problem": problem, "dtype": dtype, "extents": extents},
            )
        )  # fmt: skip

    scale = 1 if quick else 32
    for dtype in ("fp32",) if quick else ("fp32", "bf16"):
        bandwidth("add", dtype, 3 * scale * 2**20, scale * 2**20)
    for rows, columns in ((64, 1000),) if quick else ((8192, 4096), (8192, 11008), (4096, 16384)):
        n = rows * columns
        bandwidth("softmax", "bf16", 2 * n, rows, columns)
        bandwidth("rms_norm", "bf16", 2 * n, rows, columns)
        bandwidth("layer_norm", "bf16", 2 * n, rows, columns)
        if columns < 16384:
            bandwidth("swiglu", "bf16", 3 * n, rows, columns)
            bandwidth("layer_norm_backward", "bf16", 3 * n, rows, columns)
    rows, classes = (32, 5000) if quick else (8192, 32000)
    bandwidth("cross_entropy", "bf16", 2 * rows * classes, rows, classes)
    bandwidth("dropout", "bf16", 2 * 2 * scale * 2**20, 2 * scale * 2**20)
    batch, positions, heads = (2, 8, 5) if quick else (4, 4096, 32)
    bandwidth("rope", "bf16", 2 * batch * positions * heads * 128, batch, positions, heads, 64)
    for size in (256,) if quick else (2048, 4096, 8192):
        rate("matmul_grouped_order", "bf16", 2 * size**3, size, size, size)
        if size != 8192:
            rate("matmul", "bf16", 2 * size**3, size, size, size)
    m, k = (64, 4096) if quick else (512, 16384)
    rate("matmul_split_k", "bf16", 2 * m * m * k, m, m, k)
    groups = [(s * 128, t * 128, 512) for s, t in ((1, 1), (2, 1))] if quick else [
        (s, t, 2048) for s, t in itertools.product((512, 1024, 2048), (1024, 4096))
    ]  # fmt: skip
    rate("matmul_grouped", "fp16", sum(2 * m * n * k for m, n, k in groups), *groups)
    for length in (256,) if quick else (1024, 4096):
        for head, causal in itertools.product((64, 128), (False, True)):
            batch, heads = (1, 2) if quick else (16384 // length, 2048 // head)
            operations = 4 * batch * heads * length * length * head / (2 if causal else 1)
            rate("attention", "bf16", operations, batch, heads, length, head, causal)
    return found


def problem_of(case: Case) -> Problem:
    problems = Problems(case.device, case.arguments["dtype"])
    problem: Problem = getattr(problems, case.arguments["problem"])(*case.arguments["extents"])
    return problem


def prepare(case: Case) -> Prepared:
    problem = problem_of(case)

    def contender(compiler: str) -> Callable[..., Result]:
        kernels = load_kernels(compiler)

        def run(*tensors: Any) -> Result:
            if problem.before is not None:
                problem.before(*tensors)
            for launch in problem.launches(*tensors):
                getattr(kernels, launch.kernel)[launch.grid](*launch.args, **launch.kwargs)
            return problem.result(*tensors)

        return run

    compilers = [OURS, *(peer for peer in case.peers if case.device == "cuda")]
    return Prepared(problem.inputs, {name: contender(name) for name in compilers}, problem.reference)


# ---- compile times ----


TURNS = 3
"""How often the kernels of a case are compiled. Each compiler is first in turn; medians count."""


def compile_seconds(case: Case, number: int, kept: str = "", turn: int = 0) -> dict[str, float]:
    """Compiles every config of a case's kernels by both, as the search of either does, and returns each one's seconds.

    A small kernel, another one for each `number`, comes first: starting LLVM is not counted. Cases with kernels in common must not
    find each other's: with `kept`, each has caches of its own, which are copied in the first turn into those in that folder.
    """
    if kept:
        own = caches_in(tempfile.mkdtemp(dir=kept))  # it stays: what Triton keeps names files by their whole paths
        with mock.patch.dict(os.environ, own):
            seconds = compile_seconds(case, number, turn=turn)
        for name, folder in caches_in(kept).items():
            if turn == 0 and Path(own[name]).exists():
                shutil.copytree(own[name], folder, dirs_exist_ok=True)
        return seconds
    problem = problem_of(case)
    tensors = problem.inputs()
    seconds = {}
    compilers = (OURS, *case.peers)
    for compiler in compilers if turn % 2 == 0 else reversed(compilers):
        kernels = load_kernels(compiler)
        x = torch.zeros(1024, device=case.device)
        warm = {"BLOCK": 1024, "num_warps": 1 << number % 4, "num_stages": 1 + number // 4 % 8}
        kernels.add.fn.run(x, x, x, 1024, grid=(1,), warmup=True, **warm)
        start = time.perf_counter()
        for launch in problem.launches(*tensors):
            with contextlib.suppress(KernelpackError):  # e.g. a config's shared memory: the search leaves it out, too
                getattr(kernels, launch.kernel).warmup(*launch.args, grid=(1,), **launch.kwargs)
        seconds[compiler] = time.perf_counter() - start
    return seconds


def caches_in(folder: str) -> dict[str, str]:
    """Returns the variables that have both compilers keep in a folder what they compile."""
    return {"KERNELPACK_CACHE_DIR": f"{folder}/kernelpack", "TRITON_CACHE_DIR": f"{folder}/triton"}


def _compile_all(wanted: Sequence[Case], table: Table, jobs: int, folder: str) -> None:
    """Compiles the kernels of all cases, each in a process of its own, into caches that the measuring process finds."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        turns = [
            [pool.submit(compile_seconds, case, number, folder, turn) for number, case in enumerate(wanted)]
            for turn in range(TURNS)
        ]
        for case, *futures in zip(wanted, *turns, strict=True):
            seconds = [future.result() for future in futures]
            for peer in case.peers:
                ours, theirs = (statistics.median(each[name] for each in seconds) for name in (OURS, peer))
                table.add(Row(f"compile {case.name}", "s", ours, peer, theirs))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    parser = case_arguments("benchmarks.same_source")
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument(
        "--jobs", type=int, default=min(8, len(os.sched_getaffinity(0))), metavar="N", help="compiling processes"
    )
    asked = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; to fix: run on a machine with a GPU")
    if importlib.util.find_spec("triton") is None:
        parser.error("Triton is not installed; to fix: pip install triton")
    wanted = chosen(parser, asked, cases(asked.device, asked.quick))
    failed: list[str] = []
    table, compiling = Table([f"compile {case.name}" for case in wanted]), Table([])
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, caches_in(folder)):
        _compile_all(wanted, compiling, asked.jobs, folder)
        with processes("benchmarks.same_source", None, []) as process_of:
            for case in wanted:
                try:
                    seconds = measure(case, process_of, asked.rounds)
                except RuntimeError as problem:
                    failed.append(case.name)
                    print(problem, flush=True)
                    continue
                for peer in case.peers:
                    table.add(Row(case.name, case.unit, case.work / seconds[OURS], peer, case.work / seconds[peer]))
    for part in (compiling, table):
        part.summarise()
    if asked.json is not None:
        write_json(asked.json, asked.device, [*table.rows, *compiling.rows])
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
