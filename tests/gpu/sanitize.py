"""Runs every kernel of the op library under NVIDIA's compute-sanitizer: `python -m tests.gpu.sanitize`, where a GPU is.

Each tool's calls (tests/gpu/kernel_calls.py) are shared among processes that run side by side. What is checked is what the library itself
launches: inputs and outputs are copied from and to the CPU's memory, every tensor has an allocation of its own, and outputs hold
NaN before a call, of which nothing may be left. Exit status 1: a tool reports something, a call fails or was not done in time, or a
kernel of the library that calls reach on this GPU did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

import kernelpack
from kernelpack.opgen.build import plan_library
from kernelpack.opgen.load import own_library
from kernelpack.target import Target
from tests.gpu.kernel_calls import kernel_calls, reachable_kernels
from tests.ops.grid import Case, convert

BARRIERS = ("--num-cuda-barriers", "1024")
"""Kernels that nvcc did not make do not say how many mbarriers they have: without this the tools track too few of them."""
TOOLS = {
    "racecheck": (*BARRIERS, "--racecheck-num-workers", "1"),
    "synccheck": BARRIERS,
    "memcheck": ("--padding", "64"),
    "initcheck": (),
}
"""The tools, the slowest first, with their options."""
REPORTED = 9
"""The exit status of a tool that reports something."""
UNFOLLOWED = {
    "racecheck": (
        re.compile(r"access at kernelpack_mla_part_\w+_aligned_cuda_sm_90a\+"),
        "a role reads factors that another wrote; the tool follows no barrier of some of a program's warps from one role to another, "
        "be it named or an mbarrier. tests/simt takes away each of these barriers, and sees the race that it makes",
    )
}
"""Reports that are no faults: in which kernel, and why."""
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True)
class Share:
    """The part of a tool's calls that one process made."""

    tool: str
    seconds: float
    done: int
    problem: str
    launched: frozenset[str]


def run(case: Case) -> None:
    """Makes a call on the GPU. Raises AssertionError where its result is not finite, or was not written. Of an op that returns none,
    the tools alone say what is wrong."""
    args, kwargs = case.arguments()
    packet = getattr(torch.ops.kernelpack, case.op)
    (meta_args, meta_kwargs), (there_args, there_kwargs) = (
        (tuple(place(x) for x in args), {name: place(x) for name, x in kwargs.items()}) for place in (_on_meta, _on_gpu)
    )
    if not packet.default._schema.returns:
        packet(*there_args, **there_kwargs)
        torch.cuda.synchronize()
        return
    likes = packet(*meta_args, **meta_kwargs)
    names = [argument.name for argument in packet.out._schema.arguments if argument.is_out]
    outs = {}
    for name, like in zip(names, likes if isinstance(likes, tuple) else (likes,), strict=True):
        out = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        outs[name] = convert(out.fill_(float("nan")) if out.is_floating_point() else out, out.dtype, "cuda")
    packet.out(*there_args, **there_kwargs, **outs)
    for name, out in outs.items():  # of integers initcheck alone says whether they were written
        assert convert(out, out.dtype).float().isfinite().all(), f"{case}: not all of {name} was written"


def _on_meta(x: Any) -> Any:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, torch.Tensor) else x


def _on_gpu(x: Any) -> Any:
    return convert(x, x.dtype, "cuda") if isinstance(x, torch.Tensor) else x


def run_share(number: int, shares: int) -> None:
    """Makes one call in so many, each said when it begins and when it is done."""
    assert kernelpack.__version__  # what loads torch.ops.kernelpack
    torch.set_num_threads(1)
    for case in kernel_calls()[number::shares]:
        print("call", case, flush=True)
        run(case)
        print("done", flush=True)


def sanitize(tool: str, number: int, shares: int, folder: Path, deadline: float) -> Share:
    """Runs a share of the calls under a tool, in a process of its own, until a time of the monotonic clock."""
    started = time.monotonic()
    log, trace = folder / f"{tool}-{number}.log", folder / f"{tool}-{number}.trace"
    command = ["compute-sanitizer", "--tool", tool, *TOOLS[tool], "--error-exitcode", str(REPORTED), "--print-limit", "20"]
    command += [sys.executable, "-m", "tests.gpu.sanitize", "--share", str(number), str(shares)]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "KERNELPACK_TRACE": str(trace)}
    problem = ""
    with log.open("w") as file:
        try:
            left = max(deadline - started, 1)
            status = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, timeout=left).returncode
        except subprocess.TimeoutExpired:
            problem, status = "not done in time", 0
    text = log.read_text(errors="replace")
    found = [str(max(int(count) - _unfollowed(tool, text), 0)) for count in SUMMARY.findall(text)]
    if not problem and (status not in (0, REPORTED) or found != ["0"]):
        problem = f"exit status {status}, {found[0] if found else 'no'} errors"
    if problem:
        at = [line for line in text.splitlines() if line.startswith("call ")][-1:] or ["before the first call"]
        reports = [line for line in text.splitlines() if line.startswith("=========") and len(line.split()) > 2]
        problem = f"{problem}; last: {at[0]}; see {log}\n" + "\n".join(f"    {line}" for line in reports[:12])
    records = [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []
    launched = frozenset(launch["variant"] for record in records for launch in record["launches"])
    return Share(tool, time.monotonic() - started, text.count("\ndone"), problem, launched)


def _unfollowed(tool: str, text: str) -> int:
    """Returns how many reports of a log are of UNFOLLOWED: all accesses that each names are."""
    if tool not in UNFOLLOWED:
        return 0
    pattern, _ = UNFOLLOWED[tool]
    reports = re.findall(r"Race reported between .*(?:\n=========     and .*)*", text)
    return sum(all(pattern.search(line) for line in report.splitlines()) for report in reports)


def main(tools: Sequence[str], jobs: int, shares: int, folder: Path, limit: float) -> int:
    deadline = time.monotonic() + limit
    work = [(tool, number) for tool in TOOLS if tool in tools for number in range(shares)]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda one: sanitize(*one, shares, folder, deadline), work))
    calls, kernels = len(kernel_calls()), _kernels()
    failed = False
    for tool in tools:
        own = [share for share in found if share.tool == tool]
        missed = sorted(kernels - frozenset().union(*(share.launched for share in own)))
        done, problems = sum(share.done for share in own), [share.problem for share in own if share.problem]
        slowest = max(share.seconds for share in own)
        print(f"{tool}: {done} of {calls} calls, {len(kernels) - len(missed)} of {len(kernels)} kernels, {slowest:.0f} s")
        print(*(f"  {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
        if missed:
            print(f"  not launched: {', '.join(missed[:8])}{' ...' if len(missed) > 8 else ''}")
        failed |= bool(problems or missed or done < calls)
    return int(failed)


def _kernels() -> frozenset[str]:
    """Returns the names of the library's kernels for this GPU that calls can reach."""
    target = Target.parse("cuda:sm_90a" if torch.cuda.get_device_capability() == (9, 0) else "cuda:sm_80")
    lines = (line.split() for line in (own_library() / "ops.lock").read_text().splitlines())
    built = frozenset(words[1] for words in lines if words[0] == str(target))
    plan = plan_library([Path(__file__).parents[2] / "ops"], namespace="kernelpack", targets=[target])
    return built & reachable_kernels(plan, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="one of several; default: all")
    parser.add_argument("-j", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--shares", type=int, default=8)
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--logs", type=Path, metavar="FOLDER")
    parser.add_argument("--share", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.share is not None:
        run_share(*given.share)
    else:
        logs = given.logs or Path(mkdtemp(prefix="sanitize-"))
        logs.mkdir(parents=True, exist_ok=True)
        sys.exit(main(given.tool or list(TOOLS), given.j, given.shares, logs, given.limit))
