"""Writes the parts of README and other pages that come from data: ops, what each backend lacks, figures and their plots, knobs, rooms. Run:
make readme."""

from __future__ import annotations

import ast
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docs import triton_names as names
from docs.wheels import RECORD, table_rows
from kernelpack.backends.base import Backend
from kernelpack.backends.installed import backends
from kernelpack.dtypes import DType
from kernelpack.ir.core import Operation
from kernelpack.ir.dialects import arith, gpu, scf, shapes, tile_ops, tt
from kernelpack.ir.dialects import math as math_dialect
from kernelpack.knobs import ALL_OP_TARGETS, KNOBS
from kernelpack.language.unsupported import UNSUPPORTED
from kernelpack.opgen.op import Op
from kernelpack.opgen.sources import find_ops
from kernelpack.report.plot import figures_of, plot

ROOT = Path(__file__).parents[1]
WIDTH = 128
INLINED = "tt.call"
"""Never reaches a backend: every function is inlined before."""
README = ROOT / "README.md"
PAGES = (
    README,
    ROOT / "CONTRIBUTING.md",
    *(
        ROOT / "docs" / name
        for name in ("knobs.md", "support.md", "inductor.md", "performance.md", "standing-in.md", "wheels.md", "adopting.md")
    ),
)
FIGURES = ROOT / "docs" / "benchmarks"

Row = tuple[str, ...]


def table(header: Row, rows: Sequence[Row]) -> str:
    lines = [header, tuple("-" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# -- ops --------------------------------------------------------------------------------------------------------------------


def ops() -> str:
    """The ops that kernelpack ships, with the dtypes and ranges from which the accuracy grid is made."""
    rows: list[Row] = []
    for op in find_ops([ROOT / "ops"], "kernelpack"):
        ranges = dict(sys.modules[op.function.__module__].RANGES)
        dtypes = ranges.pop("dtypes")
        rows.append(
            (f"`{op.name}`", ", ".join(dtypes), "; ".join(_range(*item) for item in ranges.items()), *_built(op, dtypes))
        )
    return table(("op", "dtypes", "supports", *(f"`{name}`" for name in _launched())), rows)


def _range(name: str, values: Any) -> str:
    words = name.replace("_", " ")
    if len(values) == 2 and all(type(value) is int for value in values) and values[1] > values[0] + 1:
        return f"{words} {values[0]} to {'2^31 - 1' if values[1] == 2**31 - 1 else values[1]}"
    return f"{words} {', '.join('none' if value is None else str(value) for value in values)}"


def _built(op: Op, dtypes: tuple[str, ...]) -> list[str]:
    """Returns for each backend whether the op library has the op there, in all dtypes that the grid runs."""
    compiled = [{entry.name for entry in op.space.dtypes[x.name] if isinstance(entry, DType)} for x in op.schema.tensors]
    assert any(set(dtypes) <= own for own in compiled), f"{op.name}: RANGES promise dtypes that are not built: {dtypes}"
    targets = ALL_OP_TARGETS
    return ["yes" if any(target.startswith(f"{name}:") for target in targets) else "-" for name in _launched()]


def _launched() -> list[str]:
    """Returns the backends whose kernels can be in an op library."""
    return [name for name, backend in backends().items() if backend.launcher is not None]


# -- what the backends compile ----------------------------------------------------------------------------------------------


def operations() -> str:
    """The operations of ttir, and which of them each backend refuses: asked of the backends themselves. Operations on descriptors
    are left out: where TMA does not serve them, a pass turns them into loads and stores."""
    tables = (arith.ARITH, math_dialect.MATH, scf.SCF, tt.TT, shapes.SHAPES, tile_ops.TILE_OPS, gpu.GPU)
    rows: list[Row] = []
    for dialect in dict.fromkeys(one.name for one in tables):
        names = [name for one in tables if one.name == dialect for name in one.rows if name != INLINED]
        missing = {key: [name for name in names if not _lowers(backend, name)] for key, backend in backends().items()}
        rows.append((f"`{dialect}`", str(len(names)), *map(_all_but, missing.values())))
    return table(("dialect", "operations", *(f"`{name}`" for name in backends())), rows)


def _lowers(backend: Backend, name: str) -> bool:
    operation = Operation(name, attributes={"symbol": "__nv_expf"})  # a function that tt.extern_elementwise may call
    return backend.supports(operation, backend.targets()[0]) is None


def _all_but(names: list[str]) -> str:
    return "all but " + ", ".join(f"`{name.partition('.')[2]}`" for name in names) if names else "all"


def language() -> str:
    """Names of triton.language that are refused by name."""
    return textwrap.fill(", ".join(f"`{name}`" for name in sorted(UNSUPPORTED)), WIDTH, break_on_hyphens=False)


# -- figures ----------------------------------------------------------------------------------------------------------------


def performance() -> str:
    """What the files of docs/benchmarks hold, a table a machine: for each subject, peer and unit, how many cases, the geometric mean
    of their ratios, the worst and the best. Limits that a benchmark sets itself are no peers."""
    tables: dict[str, list[Row]] = {}
    for file in sorted(FIGURES.glob("*.json")):
        record = json.loads(file.read_text())
        where = ", ".join(f"{key} {value}" for key, value in {**record["machine"], **record["versions"]}.items())
        subject = f"[{file.stem.rpartition('-')[0]}](benchmarks/{file.name})"
        peers = dict.fromkeys((row["peer"], row["unit"]) for row in record["rows"] if row["peer"] != "limit")
        for peer, unit in peers:
            alike = [row for row in record["rows"] if (row["peer"], row["unit"]) == (peer, unit)]
            tables.setdefault(where, []).append((subject, peer, unit, *_summary(alike)))
            subject = ""
    header = ("figures", "peer", "unit", "cases", "mean", "worst", "best")
    return "\n\n".join(f"{where}:\n\n{table(header, rows)}" for where, rows in tables.items())


FIVE = (
    ("matmul-h200", "cublas"),
    ("attention-h100", "cudnn"),
    ("rowwise-h100", "stock torch"),
    ("same-source-h100", "triton"),
    ("attention-cpu", "stock torch"),
)
"""File and peer of README's rows: in each, the first unit of that peer."""


PLOTS = {"attention-h100": "bf16 d128", "rowwise-h100": "bf16 8192x4096"}
"""Files of figures that README shows as plots: words that choose among their cases."""


def plots() -> dict[Path, str]:
    """Returns README's plots by the files in which they are kept."""
    found = {}
    for name, words in PLOTS.items():
        (figures,) = figures_of(FIGURES / f"{name}.json", words)
        found[FIGURES / f"{name}.svg"] = plot(figures)
    return found


def five() -> str:
    """Five rows of performance(), and two plots: what a reader asks first."""
    rows: list[Row] = []
    for name, peer in FIVE:
        record = json.loads((FIGURES / f"{name}.json").read_text())
        alike = [row for row in record["rows"] if row["peer"] == peer]
        alike = [row for row in alike if row["unit"] == alike[0]["unit"]]
        subject, _, machine = name.rpartition("-")
        rows.append((f"[{subject}](docs/benchmarks/{name}.json), {machine.upper()}", peer, *_summary(alike)))
    pictures = (f"![{name}]({path.relative_to(ROOT)})" for name, path in zip(PLOTS, plots(), strict=True))
    return "\n\n".join([table(("figures", "peer", "cases", "mean", "worst", "best"), rows), *pictures])


def _summary(rows: list[dict[str, Any]]) -> Row:
    ratios = [row["ratio"] for row in rows]
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    worst = min(rows, key=lambda row: row["ratio"])
    best = max(rows, key=lambda row: row["ratio"])
    return (
        str(len(rows)),
        f"{mean:.2f}x",
        f"{worst['ratio']:.2f}x {worst['case']}",
        f"{best['ratio']:.2f}x {best['case']}" if len(rows) > 1 else "",
    )


def inductor() -> str:
    """The ratios of docs/benchmarks/inductor-cpu.json: a row for each model or kernel, a column for each number of threads."""
    file, rows = FIGURES / "inductor-cpu.json", dict[str, dict[str, str]]()
    if not file.is_file():
        return f"`python -m benchmarks.inductor --json {file.relative_to(ROOT)}` and `make readme` write the figures here."
    for row in json.loads(file.read_text())["rows"]:
        name, _, threads = row["case"].rpartition(" ")
        rows.setdefault(name, {})[threads] = f"{row['ratio']:.2f}x"
    return table(
        ("", "1 thread", "2 threads"),
        [(name, *(found.get(threads, "") for threads in ("1t", "2t"))) for name, found in rows.items()],
    )


def inductor_cuda() -> str:
    """The ratios of docs/benchmarks/inductor-h100.json."""
    file = FIGURES / "inductor-h100.json"
    if not file.is_file():
        return f"`--json {file.relative_to(ROOT)}` and `make readme` write the figures here."
    rows = json.loads(file.read_text())["rows"]
    return table(("", "kernelpack / Triton"), [(row["case"], f"{row['ratio']:.2f}x") for row in rows])


def engines() -> str:
    """What the figures of an H100 say of the kernels of each package, and of their launches."""
    return _engines("h100")


def engines_h200() -> str:
    """The same of an H200."""
    return _engines("h200")


def _engines(machine: str) -> str:
    kernels, hosts = (
        json.loads((FIGURES / f"{name}-{machine}.json").read_text())["rows"] for name in ("engines", "engine-launches")
    )
    packages = dict.fromkeys(row["case"].partition(" ")[0] for row in kernels)
    named = {package: [row for row in kernels if row["case"].startswith(f"{package} ")] for package in packages}
    launches = {package: [row for row in hosts if row["case"].startswith(f"{package} ")] for package in packages}
    rows = [
        (name, *_summary(mine)[:3], *_summary({**launches, "all": hosts}[name])[1:3])
        for name, mine in {**named, "all": kernels}.items()
    ]
    return table(("package", "calls", "mean", "worst", "launches, mean", "worst"), rows)


def adopted() -> str:
    """The rows of docs/benchmarks/adopted-h100.json."""
    rows = json.loads((FIGURES / "adopted-h100.json").read_text())["rows"]
    return table(
        ("on an H100", "from a folder", "beside", "", "ratio"),
        [
            (
                row["case"],
                f"{row['ours']:.3g} {row['unit']}",
                row["peer"],
                f"{row['theirs']:.3g} {row['unit']}",
                f"{row['ratio']:.2f}x",
            )
            for row in rows
        ],
    )


def wheels() -> str:
    """What docs/wheels.json says of the wheel of a new project in fresh environments."""
    return table(*table_rows(json.loads(RECORD.read_text())))


def triton_names() -> str:
    """What docs/triton_names.json lists, and what kernelpack says of it."""
    return table(*names.table_rows(json.loads(names.RECORD.read_text())))


# -- knobs, rooms -----------------------------------------------------------------------------------------------------------


def knobs() -> str:
    """The rows of kernelpack/knobs/__init__.py."""
    rows = [
        (f"`{knob.name}`", f"`{knob.default}`".replace(",", ", ") if knob.default else "", knob.used_by, knob.meaning)
        for knob in KNOBS
    ]
    return table(("variable", "default", "read by", "meaning"), rows)


def rooms() -> str:
    """Every room of the package with the first line of what it says about itself."""
    rows: list[Row] = []
    package = ROOT / "kernelpack"
    for file in sorted([*package.glob("*.py"), *package.glob("*/__init__.py"), *package.glob("backends/*/__init__.py")]):
        purpose = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
        name = file.parent if file.name == "__init__.py" else file
        if file.parent.name != "library" and name != package:
            rows.append((f"`{name.relative_to(package)}{'/' if name.is_dir() else ''}`", purpose))
    return table(("room", "what it is for"), rows)


# -- the file ---------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], str]] = {
    "ops": ops,
    "operations": operations,
    "language": language,
    "performance": performance,
    "five": five,
    "triton_names": triton_names,
    "inductor": inductor,
    "inductor_cuda": inductor_cuda,
    "engines": engines,
    "engines_h200": engines_h200,
    "adopted": adopted,
    "wheels": wheels,
    "knobs": knobs,
    "rooms": rooms,
}


def filled(text: str) -> str:
    """Returns a page's text with every part between `<!-- NAME -->` and `<!-- end -->` made anew."""

    def part(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{PARTS[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", part, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
    for file, svg in plots().items():
        file.write_text(svg)
