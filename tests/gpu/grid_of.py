"""Runs the accuracy grid of some ops on a GPU, with a library that lies in a folder: `python -m tests.gpu.grid_of FOLDER [OP ...]`.

Build it where the compiler is, for example by `kernelpack build ops/embedding.py --namespace kernelpack --target cuda:sm_90a --out FOLDER`.
"""

from __future__ import annotations

import sys

import kernelpack
from tests.ops.grid import OPS, failures


def main(folder: str, ops: list[str]) -> int:
    """Prints what is inaccurate of each op. Returns how many cases are."""
    kernelpack.load(folder)
    wrong = 0
    for op in ops or OPS:
        count, problems = failures("cuda", op)
        print(*problems, f"{op}: {count} cases, {len(problems)} inaccurate", sep="\n", flush=True)
        wrong += len(problems)
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1], sys.argv[2:])))
