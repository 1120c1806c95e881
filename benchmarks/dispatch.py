"""How long an op's functor takes to find its variant, among 4 to 400: by the tables that builds write, and by comparing one by one."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Row, Table, arguments, write_json
from kernelpack.backends.base import CSRC
from kernelpack.compiled import Parameter
from kernelpack.dtypes import DType
from kernelpack.opgen.build import library_plan, plan_library
from kernelpack.opgen.emit.dispatch_tables import DispatchTables
from kernelpack.opgen.emit.print_cpp import cpp_dtype
from kernelpack.opgen.variants.assumptions import ttir_type
from kernelpack.pack.format import KernelPack
from kernelpack.pack.ninja import TORCH_TARGET_VERSION, torch_dir

_PROGRAM = Path(__file__).parent / "dispatch.cpp"
VARIANTS = (4, 16, 40, 100, 400)
LIMIT = 2.0
"""How many times longer the choice among the most may take than among the fewest: larger tables leave the nearest cache."""

_OP = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def fill(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@kp.op("pick(Tensor x, int block) -> Tensor", variants={{"x": [tl.float32, tl.float16], "BLOCK": {values}}})
def pick(x, block):
    out = kp.empty_like(x)
    fill[(1,)](x, out, x.numel(), BLOCK=block)
    return out
"""


def tables_of(folder: Path, variants: int) -> str:
    """Returns the tables of an op of so many variants: two dtypes, some values of a constexpr, aligned or not."""
    values = [16 * (i + 1) for i in range(variants // 4)]
    (folder / "op.py").write_text(_OP.format(values=values))
    plan = plan_library([folder / "op.py"], namespace="some", targets=["cuda:sm_80"])
    packs = {
        variant.entry: KernelPack(
            variant.ops,
            variant.name,
            variant.target,
            "cubin",
            variant.entry,
            tuple(Parameter(name, ttir_type(kind)) for name, kind in variant.signature.items()),
            {},
            variant.options,
            variant.assumed,
            {},
            {},
            b"never run",
        )
        for variant in plan.variants
    }
    library = library_plan(plan, packs)
    tables = DispatchTables(library, library.ops[0])
    (launch,) = library.ops[0].launches
    places = iter(
        [(dtype, value) for dtype in library.ops[0].space.dtypes["x"] if isinstance(dtype, DType) for value in values]
    )
    built = [
        f"    {{{cpp_dtype(dtype)}, {value}, {str(bool(row.variant.assumed)).lower()}}},"
        for point, (dtype, value) in zip(launch.points[plan.targets[0][0]], places, strict=True)
        for row in sorted(point, key=lambda row: -len(row.variant.assumed))
    ]
    return "\n".join(
        [
            f"namespace some_kernels {{ kernelpack::Kernel cuda[{len(packs)}] = {{}}; }}",
            "namespace {",
            tables.text(),
            f"constexpr int kValueCount = {len(values)};",
            "const Asked kBuilt[] = {",
            *built,
            "};",
            "}  // namespace",
        ]
    )


def measure(folder: Path, variants: int) -> tuple[float, float]:
    """Returns the nanoseconds of a choice by tables, and by comparing."""
    (folder / "tables.h").write_text(tables_of(folder, variants))
    includes = [f"-I{folder}", f"-I{CSRC}", f"-I{torch_dir() / 'include'}", f"-DTORCH_TARGET_VERSION={TORCH_TARGET_VERSION}"]
    subprocess.run(["g++", "-std=c++17", "-O2", *includes, _PROGRAM, "-o", "dispatch"], cwd=folder, check=True)
    said = subprocess.run([folder / "dispatch"], capture_output=True, text=True, check=True).stdout.split()
    return float(said[0]), float(said[1])


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("benchmarks.dispatch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="makes no difference: no kernel is run")
    asked = parser.parse_args(argv)
    counts = VARIANTS[::4] if asked.quick else VARIANTS
    table = Table([f"{count} variants" for count in counts])
    with tempfile.TemporaryDirectory() as name:
        fewest = 0.0
        for count in counts:
            tables, comparing = measure(Path(name), count)
            fewest = fewest or tables
            table.add(Row(f"{count} variants", "ns", tables, "one by one", comparing, limit=LIMIT * fewest))
    table.summarise()
    if asked.json is not None:
        write_json(asked.json, "cpu", table.rows)


if __name__ == "__main__":
    main()
