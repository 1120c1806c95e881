"""`python -m tests.inductor`: runs PyTorch's own tests of Inductor on CPUs with kernelpack as Triton, and with Inductor's C++ backend.

It prints how many pass with each, and fails where kernelpack passes less than 99 % of what the C++ backend passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from tests.inductor.pytorch_sources import fetched

ROOT = Path(__file__).parents[2]
BAR = 0.99
PATIENCE = 900
"""Seconds that one test may take."""

Results = dict[str, dict[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.inductor", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="test/inductor of a checkout of PyTorch; default: fetched into build/inductor"
    )
    parser.add_argument("--only", default="", help="run the tests whose names hold this text")
    parser.add_argument("--failed-on-cpp", action="store_true", help="with C++, run only what fails with kernelpack")
    given = parser.parse_args()
    build = ROOT / "build" / "inductor"
    folder, release = (given.folder, "given") if given.folder else fetched(torch.__version__.partition("+")[0], build)
    listing = build / "names.jsonl"
    listing.unlink(missing_ok=True)
    _worker(folder, "triton", listing, ["--list"]).wait()
    names = [name for line in listing.read_text().splitlines() if given.only in (name := json.loads(line)["name"])]
    ours = run_all(folder, "triton", names, build)
    asked = [name for name in names if ours[name]["outcome"] != "passed"] if given.failed_on_cpp else names
    cpp = run_all(folder, "cpp", asked, build)
    print(f"\nPyTorch's tests: release {release}; torch {torch.__version__}; {len(names)} tests")
    for backend, results in (("kernelpack", ours), ("C++", cpp)):
        counts = Counter(result["outcome"] for result in results.values())
        print(f"{backend:10}  " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    lost = [name for name, result in cpp.items() if result["outcome"] == "passed" and ours[name]["outcome"] != "passed"]
    passed = sum(result["outcome"] == "passed" for result in (ours if given.failed_on_cpp else cpp).values())
    passed += len(lost) if given.failed_on_cpp else 0
    share = 1 - len(lost) / max(1, passed)
    print(f"of {passed} tests that C++ passes{' or was not asked' * given.failed_on_cpp}, kernelpack passes {share:.2%}")
    for name in lost:
        print(f"  {name}: {ours[name]['outcome']}: {ours[name].get('why', '').strip().splitlines()[-1:]}")
    sys.exit(share < BAR)


def run_all(folder: Path, backend: str, names: list[str], build: Path) -> Results:
    """Runs tests in processes of their own, one after the other: where one ends within a test, the next goes on after it. What an earlier
    run of the same tests found is kept."""
    record = build / f"{backend}.jsonl"
    results = _read(record)
    while left := [name for name in names if name not in results]:
        print(f"{backend}: {len(names) - len(left)} of {len(names)} tests are done", flush=True)
        (build / "left.txt").write_text("\n".join(left))
        process = _worker(folder, backend, record, ["--names", str(build / "left.txt")])
        seen = time.time()
        while process.poll() is None:
            time.sleep(1)
            if record.is_file():
                seen = max(seen, record.stat().st_mtime)
            if time.time() - seen > PATIENCE:
                process.kill()
        results = _read(record)
        for name, result in results.items():
            if result["outcome"] == "started":
                result |= {"outcome": "crashed", "why": f"the process ended with {process.returncode}"}
                with record.open("a") as file:
                    file.write(json.dumps({"name": name, **result}) + "\n")
        if not any(name in results for name in left):
            raise SystemExit(f"no test runs with {backend}: the process ended with {process.returncode}")
    return {name: results[name] for name in names}


def _read(record: Path) -> Results:
    lines = record.read_text().splitlines() if record.is_file() else []
    return {line["name"]: line for line in map(json.loads, lines)}


def _worker(folder: Path, backend: str, results: Path, options: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.inductor.pytorch_worker", str(folder), backend, str(results), *options]
    log = results.with_suffix(".log").open("ab")
    environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


if __name__ == "__main__":
    main()
