"""Times vLLM's V2 runner on kernelpack against its V1 runner with C++ kernels, in turns: tokens per second, and the time to start.

python -m tests.engines.vllm.speed    prints a ratio for each measure; above 1 the V2 runner is faster
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.engines.environment import ROOT, python
from tests.engines.vllm.environment import RUNNERS, VLLM, variables
from tests.engines.vllm.prompts import PROMPTS

MEASURES: dict[str, tuple[int, int, int]] = {"batch 1": (1, 0, 64), "batch 16": (16, 0, 64), "prefill 1,024": (1, 1024, 1)}
"""Requests at once, tokens of each prompt (0: a short question), and tokens to generate."""


def serve(model: str) -> None:
    """Runs in vLLM's environment: measures what each line of the input names, and prints a line of JSON."""
    started = time.perf_counter()
    from vllm import LLM, SamplingParams

    engine = LLM(model, dtype="bfloat16", max_model_len=2048, max_num_seqs=16, enforce_eager=True, enable_prefix_caching=False)
    print(json.dumps({"start": time.perf_counter() - started}), flush=True)
    words = engine.get_tokenizer().encode(" ".join(PROMPTS) * 16)
    while line := input():
        requests, length, tokens = MEASURES[line]
        prompts: list[Any] = [
            {"prompt_token_ids": words[number : number + length] if length else words[number * 8 : number * 8 + 8]}
            for number in range(requests)
        ]
        begin = time.perf_counter()
        engine.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False)
        took = time.perf_counter() - begin
        print(json.dumps({"rate": requests * (length or tokens) / took}), flush=True)


class Engine:
    """An engine in a process of its own."""

    def __init__(self, folder: Path, runner: str) -> None:
        command = [python(folder), "-m", "tests.engines.vllm.speed", "--serve", folder / "smollm2"]
        self.log = (folder / f"speed-{runner}.log").open("w")
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=variables(folder, runner),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.start = self.read("start")

    def read(self, name: str) -> float:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return float(json.loads(line)[name])
        raise SystemExit(f"vLLM ended: see {self.log.name}")

    def rate(self, measure: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{measure}\n")
        self.process.stdin.flush()
        return self.read("rate")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    VLLM.add_folder(parser)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    VLLM.set_up(args.folder)
    Engine(args.folder, "v2").end()  # compiles its kernels, and fills the caches of files
    busy = os.getloadavg()[0]
    starts: dict[str, list[float]] = {runner: [] for runner in RUNNERS}
    for _ in range(args.starts):
        for runner in RUNNERS:
            engine = Engine(args.folder, runner)
            starts[runner].append(engine.start)
            engine.end()
    best = {runner: min(starts[runner]) for runner in RUNNERS}
    print(f"start-up: v1 {best['v1']:.1f} s, v2 {best['v2']:.1f} s, ratio {best['v1'] / best['v2']:.2f}", flush=True)
    engines = {runner: Engine(args.folder, runner) for runner in RUNNERS}
    for measure in MEASURES:
        for engine in engines.values():
            engine.rate(measure)
        rounds = [{runner: engine.rate(measure) for runner, engine in engines.items()} for _ in range(args.rounds)]
        ratio = statistics.median(found["v2"] / found["v1"] for found in rounds)
        best = {runner: max(found[runner] for found in rounds) for runner in RUNNERS}
        print(f"{measure}: v1 {best['v1']:.0f}, v2 {best['v2']:.0f} tokens/s, median ratio {ratio:.2f}", flush=True)
    print(f"load of the machine when it began: {busy:.1f}; the figures count where nothing else ran")
    for engine in engines.values():
        engine.end()


if __name__ == "__main__":
    main()
