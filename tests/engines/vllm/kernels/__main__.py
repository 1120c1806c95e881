"""Runs the cases and prints a table. Runs in vLLM's environment: python -m tests.engines.vllm.kernels [WORD ...] [--page FILE]"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from kernelpack import knobs
from tests.engines.vllm.kernels.cases import CASES, Case, distance
from tests.engines.vllm.kernels.platform import take_triton_kernels

ROOMS = ("attention", "products", "recurrent", "rows")
HEAD = "| case | shape | kernels | distance | allowed |\n| - | - | - | - | - |"


def run(case: Case) -> tuple[list[str], float, str]:
    """Returns the kernels that a case launched, the largest distance from what is expected, and an error's text."""
    launched: dict[str, None] = {}

    def note(metadata: Any) -> None:
        launched.setdefault(metadata.get()["name"].partition(" ")[0])  # vLLM adds the sizes of some launches

    knobs.runtime.launch_enter_hook.add(note)
    torch.manual_seed(0)
    try:
        distances = [distance(got, wanted) for got, wanted in case.run()]
        return list(launched), max(distances), ""
    except Exception:
        return list(launched), float("inf"), traceback.format_exc()
    finally:
        knobs.runtime.launch_enter_hook.remove(note)


class Compiled(Counter[str]):
    """How many variants of each kernel were compiled. Kernels of several modules have the same name."""

    def note(self, *, fn: Any, **_: Any) -> None:
        self[f"{fn.module}.{fn.name}"] += 1

    def __str__(self) -> str:
        return f"{self.total()} variants of {len(self)} kernels"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="runs only cases whose names hold one of these")
    parser.add_argument("--page", type=Path, help="writes the table between the marks of this page")
    args = parser.parse_args()
    take_triton_kernels()
    for name in ROOMS:  # they add their cases
        import_module(f"tests.engines.vllm.kernels.{name}")
    knobs.runtime.jit_post_compile_hook = (compiled := Compiled()).note
    lines, missed = [HEAD], 0
    for case in CASES:
        if args.words and not any(word in case.name for word in args.words):
            continue
        started = time.perf_counter()
        launched, found, error = run(case)
        good = found <= case.tolerance and bool(launched)
        missed += not good
        lines.append(
            f"| {case.name} | {case.shape} | {', '.join(f'`{name}`' for name in launched)} | {found:.1g} | {case.tolerance:g} |"
        )
        print(
            f"{'ok  ' if good else 'MISS'} {case.name:45} {found:8.2g} {time.perf_counter() - started:5.1f} s  {' '.join(launched)}"
        )
        print(error, end="", flush=True)
    total = f"{compiled}; {f'{missed} cases do not agree' if missed else 'all agree'}."
    print(total)
    if args.page:
        before, _, rest = args.page.read_text().partition("<!-- kernels -->\n")
        after = rest.partition("<!-- end -->")[2]
        table = "\n".join(lines)
        args.page.write_text(f"{before}<!-- kernels -->\n{table}\n\n{total}\n<!-- end -->{after}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
