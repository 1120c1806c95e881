"""Checks what vLLM's V2 runner says with kernelpack as its Triton: against its V1 runner, and samples against torch's softmax.

python -m tests.engines.vllm.checks [NAME ...]    prints a line for each check; ends with 1 where one is missed
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.engines.environment import ROOT, python
from tests.engines.vllm.answers import COUNTERS, FILTERS, LIMITS, SAMPLED, TEMPERATURE
from tests.engines.vllm.environment import RUNNERS, VLLM, variables

MOST_APART, LARGEST_DISTANCE = 2, 1e-2
"""So many of 20 texts may part, each where the logits of the two likeliest tokens are that near: a bfloat16 has 8 bits."""
LEAST_P = 1e-3
"""A chi-square test of samples from the right distribution gives less once in a thousand runs."""

Answers = dict[str, Any]


class Result(NamedTuple):
    """What a check found, in words, and whether it is as it should be."""

    name: str
    found: str
    good: bool


def ask(folder: Path, runner: str, model: str, *options: str) -> Answers:
    """Returns the answers of one engine. Its log goes to a file."""
    name = "-".join([runner, model, *options]).replace("--", "")
    out, log = folder / f"{name}.json", folder / f"{name}.log"
    command = [python(folder), "-m", "tests.engines.vllm.answers", "--model", folder / model, "--out", out, *options]
    out.unlink(missing_ok=True)
    with log.open("w") as lines:
        done = subprocess.run(command, cwd=ROOT, env=variables(folder, runner), stdout=lines, stderr=lines)
    if done.returncode or not out.exists():
        raise SystemExit(f"vLLM ended with {done.returncode}:\n{log.read_text()[-3000:]}")
    answers: Answers = json.loads(out.read_text())
    if answers["v2"] != (runner == "v2"):
        raise SystemExit(f"vLLM took another runner than {runner}: see {log}")
    return answers


def parting(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float | None:
    """Returns how far the two likeliest logits were apart where two texts part; None where they do not."""
    pairs = zip(ours["tokens"], theirs["tokens"], strict=False)
    at = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    if at is None:
        return None if len(ours["tokens"]) == len(theirs["tokens"]) else float("inf")
    first, second = theirs["likeliest"][at]
    return float(first - second)


def same_text(name: str, ours: list[Any], theirs: list[Any]) -> Result:
    distances = [found for found in map(parting, ours, theirs) if found is not None]
    good = len(distances) <= MOST_APART * len(ours) / 20 and all(found < LARGEST_DISTANCE for found in distances)
    apart = f", {len(distances)} part where the logits are {max(distances):.4f} apart" if distances else ""
    tokens = sum(len(each["tokens"]) for each in ours)
    return Result(name, f"{len(ours)} texts, {tokens} tokens{apart}", good)


def filtered(logprobs: torch.Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> torch.Tensor:
    """Returns the probabilities that remain, by the definitions of the three.

    All tokens as likely as the last that top-p keeps remain: in bfloat16 hundreds are equal. vLLM's kernel means to drop some of them,
    but finds them only where its logarithms are exact.
    """
    share = (logprobs.double() / TEMPERATURE).softmax(0)
    order = share.argsort(descending=True)
    keep = torch.ones_like(share, dtype=torch.bool)
    if top_k:
        keep[order[top_k:]] = False
    before = share[order].cumsum(0) - share[order]
    keep &= share >= share[order[before < top_p]].min()
    keep &= share >= min_p * share.max()
    return torch.where(keep, share, 0) / share[keep].sum()


def chi_square(name: str, counts: Mapping[str, int], expected: torch.Tensor) -> Result:
    """Compares counts with what is expected. Tokens that are expected fewer than five times count as one."""
    seen = torch.zeros_like(expected)
    for token, count in counts.items():
        seen[int(token)] = count
    outside = int(seen[expected == 0].sum())
    total = int(seen.sum())
    wanted = expected * total
    often = wanted >= 5
    rest = torch.stack([seen[~often].sum(), wanted[~often].sum()])
    seen, wanted = torch.cat([seen[often], rest[:1]]), torch.cat([wanted[often], rest[1:]])
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    value, freedom = float(((seen - wanted) ** 2 / wanted).sum()), len(wanted) - 1
    p = float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), torch.tensor(value / 2).double()))
    found = f"{total} samples, {int((expected > 0).sum())} tokens remain, chi-square {value:.1f} of {freedom}, p = {p:.3f}"
    return Result(
        name, found + (f", {outside} of others" if outside else ""), p >= LEAST_P and not outside and total == SAMPLED
    )


def texts(folder: Path) -> Iterator[Result]:
    v1 = ask(folder, "v1", "smollm2", "--ask", "greedy", "limits", "first")
    v2 = ask(folder, "v2", "smollm2", "--ask", "greedy", "limits", "sampled")
    yield same_text("greedy", v2["greedy"], v1["greedy"])
    for name in LIMITS:
        yield same_text(name, v2["limits"][name], v1["limits"][name])
    first = torch.tensor(v1["first"])
    for name, limits in FILTERS.items():
        yield chi_square(name, v2["sampled"][name], filtered(first, **limits))


def features(folder: Path) -> Iterator[Result]:
    """What changes the order of the work changes no text: V1's texts without them are the reference."""
    v1 = ask(folder, "v1", "smollm2")
    for engine, names in COUNTERS.items():
        v2 = ask(folder, "v2", "smollm2", "--engine", engine)
        result = same_text(engine, v2["greedy"], v1["greedy"])
        counts = {name: v2["counted"].get(f"vllm:{name}", 0) for name in names}
        counted = "".join(f", {count} {name}" for name, count in counts.items())
        yield Result(engine, result.found + counted, result.good and all(counts.values()))


def compiled(folder: Path) -> Iterator[Result]:
    v1, v2 = (ask(folder, runner, "smollm2", "--engine", "compiled", "--prompts", "10") for runner in RUNNERS)
    yield same_text("torch.compile", v2["greedy"], v1["greedy"])


def two_processes(folder: Path) -> Iterator[Result]:
    v1, v2 = (ask(folder, runner, "even-heads", "--engine", "two-processes", "--prompts", "10") for runner in RUNNERS)
    yield same_text("two processes", v2["greedy"], v1["greedy"])


CHECKS: dict[str, Callable[[Path], Iterator[Result]]] = {
    "texts": texts,
    "features": features,
    "compiled": compiled,
    "two-processes": two_processes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    VLLM.add_folder(parser)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(CHECKS)}; default: all")
    args = parser.parse_args()
    VLLM.set_up(args.folder)
    missed = 0
    for name in args.names or CHECKS:
        started = time.perf_counter()
        for result in CHECKS[name](args.folder):
            missed += not result.good
            print(f"{'ok  ' if result.good else 'MISS'} {result.name:18} {result.found}", flush=True)
        print(f"     {name}: {time.perf_counter() - started:.0f} s", flush=True)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
