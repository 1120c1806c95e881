"""Runs the checks and prints a table. Runs in the packages' environment: python -m tests.engines.packages.checks [WORD ...] [--page FILE]"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from kernelpack import knobs
from tests.engines.packages.checks.check import CHECKS, Check, distance

ROOMS = ("liger", "models", "bitsandbytes_kernels", "fla_ops", "mamba", "torchao_kernels")
HEAD = "| package | what is called | kernels | largest distance | allowed | agrees |\n| - | - | - | - | - | - |"


def run(check: Check) -> tuple[list[str], float, str]:
    """Returns the kernels that a check launched, the largest distance from what is expected, and an error's text."""
    launched: dict[str, None] = {}

    def note(metadata: Any) -> None:
        launched.setdefault(metadata.get()["name"])

    knobs.runtime.launch_enter_hook.add(note)
    torch.manual_seed(0)
    try:
        found = max(distance(got.detach(), wanted.detach()) for got, wanted in check.run())
        return list(launched), found, ""
    except Exception as error:
        traceback.print_exc()
        return list(launched), float("inf"), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    finally:
        knobs.runtime.launch_enter_hook.remove(note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="runs only checks whose package or name holds one of these")
    parser.add_argument("--page", type=Path, help="writes the table between the marks of this page")
    args = parser.parse_args()
    for name in ROOMS:  # they add their checks
        import_module(f"tests.engines.packages.checks.{name}")
    lines, kernels, missed = [HEAD], set(), 0
    for check in CHECKS:
        if args.words and not any(word in f"{check.package} {check.what}" for word in args.words):
            continue
        started = time.perf_counter()
        launched, found, error = run(check)
        good = found <= check.tolerance and bool(launched)
        missed += not good
        kernels |= {(check.package, name) for name in launched}
        names = ", ".join(f"`{name}`" for name in launched)
        lines.append(
            f"| {check.package} {version(check.package)} | {check.what} | {names} | {found:.1g} | {check.tolerance:g} | "
            f"{'yes' if good else f'no {error}'.strip()} |"
        )
        seconds = time.perf_counter() - started
        print(
            f"{'ok  ' if good else 'MISS'} {check.package:23} {check.what:45} {found:8.2g} {seconds:5.1f} s  {' '.join(launched)}"
        )
    summary = f"{len(kernels)} kernels; {len(lines) - 1 - missed} of {len(lines) - 1} checks agree"
    print(summary)
    if args.page:
        before, _, rest = args.page.read_text().partition("<!-- packages -->\n")
        after = rest.partition("<!-- end -->")[2]
        table = "\n".join(lines)
        args.page.write_text(f"{before}<!-- packages -->\n{table}\n\n{summary}.\n<!-- end -->{after}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
