"""Runs tests of PyTorch's test_torchinductor.py for CPUs one by one, and writes a line before and after each: a crash loses one test."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import unittest
from pathlib import Path
from typing import Any

TRITON_ONLY = "_expected_failure_triton_cpu"
"""The attribute of tests that are expected to fail on triton-cpu."""
GONE = {"complex_memory_overlap": "torch._inductor.compile_fx"}
"""Names that tests of older releases import, and later ones do not have, by module: what asks for them is skipped."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="test/inductor of PyTorch")
    parser.add_argument("backend", choices=("triton", "cpp"))
    parser.add_argument("results", type=Path, help="file to which lines of JSON are added")
    parser.add_argument("--list", action="store_true", help="write the names of the tests, and run none")
    parser.add_argument("--names", type=Path, help="file with the names of the tests to run, a line each")
    given = parser.parse_args()
    from kernelpack import as_triton

    if given.backend == "triton":
        as_triton.install()
    sys.path[:0] = [str(given.folder), str(given.folder.parent / "packages")]
    cases = _cases(given.backend)
    with given.results.open("a") as results:

        def tell(**line: Any) -> None:
            results.write(json.dumps(line) + "\n")
            results.flush()

        if given.list:
            for name in cases:
                tell(name=name)
            return
        for name in given.names.read_text().split():
            tell(name=name, outcome="started")
            started = time.perf_counter()
            outcome, why = _run(cases[name])
            tell(name=name, outcome=outcome, why=why, seconds=round(time.perf_counter() - started, 2))


def _cases(backend: str) -> dict[str, unittest.TestCase]:
    """Returns the tests by name: of test_triton_cpu_backend.py, without the skips for triton-cpu, or their siblings for C++."""
    for name, module in GONE.items():
        vars(importlib.import_module(module)).setdefault(name, _gone)
    tests = importlib.import_module("test_torchinductor")
    is_triton_cpu = tests.is_triton_cpu_backend
    # who asks in order to skip a test is told no; tests that ask what code to expect are told the truth
    tests.is_triton_cpu_backend = lambda device: "SkipTest" not in sys._getframe(1).f_code.co_names and is_triton_cpu(device)
    for function in vars(tests.CommonTemplate).values():
        if hasattr(function, TRITON_ONLY):
            delattr(function, TRITON_ONLY)
    if backend == "triton":
        module = importlib.import_module("test_triton_cpu_backend")
        kinds = (module.CpuTritonTests, module.SweepInputsCpuTritonTest)
    else:
        kinds = (tests.CpuTests, tests.SweepInputsCpuTest)
    loader = unittest.TestLoader()
    return {name: kind(name) for kind in kinds for name in loader.getTestCaseNames(kind)}


def _gone(*_: Any) -> None:
    raise unittest.SkipTest("this release of torch does not have it")


def _run(case: unittest.TestCase) -> tuple[str, str]:
    """Returns passed, failed or skipped, and why."""
    result = unittest.TestResult()
    case.__class__.setUpClass()
    try:
        case.run(result)
    finally:
        case.__class__.tearDownClass()
    for _, text in (*result.failures, *result.errors):
        return "failed", text[-4000:]
    for _, reason in result.skipped:
        return "skipped", reason
    if result.unexpectedSuccesses:
        return "failed", "it passes, and PyTorch says that it fails on CPUs"
    return "passed", ""


if __name__ == "__main__":
    main()
