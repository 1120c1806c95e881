"""Builds of the whole op library by the command line: from nothing, with nothing changed, and with one kernel changed."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Row, Table, arguments, write_json

_OPS = Path(__file__).parents[1] / "ops"
_TARGETS = ("cpu:x86-64-v3", "cpu:x86-64-v4", "cuda:sm_90a")
_COLD, _UNCHANGED = 180.0, 3.0  # seconds: the most that the first build may take, and one that has nothing to do


@dataclass(frozen=True)
class Build:
    """What one run of `kernelpack build` took, and the kernels it compiled."""

    seconds: float
    compiled: tuple[str, ...]


def build(ops: Path, targets: Sequence[str], folder: Path) -> Build:
    """Runs the command line with its cache and its output in `folder`; the time is the whole process's."""
    environment = {**os.environ, "KERNELPACK_CACHE": "1", "KERNELPACK_CACHE_DIR": str(folder / "cache")}
    chosen = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-m", "kernelpack", "build", str(ops), "--namespace", "benchmark", *chosen]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--out", str(folder / "library"), "--json"],
        env=environment | {"KERNELPACK_LOAD_LIBRARY": "0"},
        cwd=_OPS.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"the build failed: {done.stdout}")
    return Build(seconds, tuple(json.loads(done.stdout)["compiled"]))


def change_one_kernel(file: Path, compiled: Sequence[str]) -> str:
    """Adds a statement to the first kernel of an op file that was compiled, and returns the kernel's name.

    It stands in a line that is there: what follows keeps its lines, which are part of code for GPUs.
    """
    source = file.read_text()
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
    kernel = next(node for node in functions if kernels_of(node.name, compiled))
    simple = next(node for node in kernel.body if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)))
    lines = source.splitlines()
    assert simple.end_lineno is not None
    lines[simple.end_lineno - 1] += "; changed: tl.constexpr = 1"
    file.write_text("\n".join(lines) + "\n")
    return kernel.name


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).startswith("kp.jit") for decorator in node.decorator_list)


def kernels_of(name: str, compiled: Sequence[str]) -> list[str]:
    """Returns those of the compiled kernels that are variants of the kernel called `name`."""
    return [kernel for kernel in compiled if re.match(rf"{name}[-.]", kernel)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("benchmarks.build")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="makes no difference: building needs no device"
    )
    asked = parser.parse_args(argv)
    targets = _TARGETS[1:2] if asked.quick else _TARGETS
    files = sorted(_OPS.glob("*.py"))
    changed = min((file for file in files if not file.name.startswith("_")), key=lambda file: file.stat().st_size)
    if asked.quick:
        files = [file for file in files if file == changed or file.name.startswith("_")]
    names = [f"{what}, {len(targets)} targets" for what in ("cold", "nothing changed", f"{changed.stem} changed")]
    table = Table([*names, f"{changed.stem} changed: compiled"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ops = folder / "ops"
        ops.mkdir()
        for file in files:
            shutil.copy(file, ops)
        cold = build(ops, targets, folder)
        table.add(Row(names[0], "s", cold.seconds, "limit", _COLD, limit=_COLD))
        table.add(Row(names[1], "s", build(ops, targets, folder).seconds, "limit", _UNCHANGED, limit=_UNCHANGED))
        kernel = change_one_kernel(ops / changed.name, cold.compiled)
        again = build(ops, targets, folder)
    variants = kernels_of(kernel, cold.compiled)
    if not set(variants) <= set(again.compiled):
        sys.exit(f"{kernel} changed, but not all of its {len(variants)} variants were compiled: {again.compiled}")
    table.add(Row(names[2], "s", again.seconds, "cold build", cold.seconds))
    table.add(
        Row(f"{changed.stem} changed: compiled", "kernels", len(again.compiled), "limit", len(variants), limit=len(variants))
    )
    table.summarise()
    if asked.json is not None:
        write_json(asked.json, "cpu", table.rows)


if __name__ == "__main__":
    main()
