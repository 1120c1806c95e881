"""The page of a report: one HTML file with its style, its script and its data in it. It loads nothing, and its policy forbids it to."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from kernelpack.backends.installed import backend_of
from kernelpack.files.generated import MARK
from kernelpack.opgen.size import Sizes
from kernelpack.pack.format import KernelPack
from kernelpack.report.loops import Loop
from kernelpack.report.places import Places
from kernelpack.report.stages import Staged

_HERE = Path(__file__).parent
_SCRIPTS = ("data.js", "table.js", "stages.js", "loops.js", "sizes.js", "parts.js")
FIGURES = ("registers", "spills", "shared", "stack", "scratch", "num_warps", "waits_at_once")
"""The figures of packs that the table of variants may show, in order."""


@dataclass(frozen=True)
class Report:
    """What a report shows. `staged` has the stages of some packs, by entry; `plots` are SVGs."""

    title: str
    packs: Sequence[KernelPack]
    staged: Mapping[str, Staged]
    sizes: Sizes | None
    plots: Sequence[str]


def page(report: Report) -> str:
    """Returns the HTML of a report. It has ASCII characters alone, and names of ops, files and lines of source only as data."""
    script = "\n".join((_HERE / name).read_text() for name in _SCRIPTS)
    parts = {
        "mark": f"{MARK} report",
        "policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
        + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        + "'",
        "title": escape(report.title),
        "style": (_HERE / "page.css").read_text(),
        "plots": "\n".join(f'<figure class="plot">{svg}</figure>' for svg in report.plots),
        "data": _json(_data(report)).replace("<", "\\u003c"),  # nothing in it ends the element that holds it
        "script": script,
    }
    text = re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], (_HERE / "page.html").read_text())
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _data(report: Report) -> dict[str, Any]:
    sources: list[dict[str, str]] = []
    packs = sorted(report.packs, key=lambda pack: (pack.ops, str(pack.target), pack.variant))
    details = [_detail(pack, report.staged[pack.entry], sources) for pack in packs if pack.entry in report.staged]
    numbers = {pack.entry: number for number, pack in enumerate(pack for pack in packs if pack.entry in report.staged)}
    sizes = report.sizes
    return {
        "title": report.title,
        "variants": [{**_variant(pack), "detail": numbers.get(pack.entry)} for pack in packs],
        "details": [_packed(detail) for detail in details],
        "sources": _packed(sources),
        "sizes": sizes and {"library": sizes.library.name, "total": sizes.total, "parts": [vars(part) for part in sizes.parts]},
        "tools": dict(sorted({tool: version for pack in packs for tool, version in pack.tools.items()}.items())),
    }


def _packed(value: Any) -> str:
    """Returns a value as base64 of its compressed JSON: stages of a kernel are megabytes of text that repeats itself."""
    return base64.b64encode(zlib.compress(_json(value).encode(), 9)).decode()


def _variant(pack: KernelPack) -> dict[str, Any]:
    element = re.compile(r"ptr<(\w+)|tensor<(?:\d+x)*(\w+)")
    found = (element.search(parameter.type) for parameter in pack.parameters)
    options = {"warps": pack.options.num_warps, "stages": pack.options.num_stages} if pack.target.backend != "cpu" else {}
    config = {**pack.constexprs, **options}
    return {
        "op": ", ".join(pack.ops),
        "name": pack.variant,
        "target": str(pack.target),
        "dtype": ", ".join(dict.fromkeys(match[1] or match[2] for match in found if match is not None)),
        "config": ", ".join(f"{name}={value}" for name, value in config.items() if value != "None"),
        "bytes": len(pack.image),
        "figures": {name: pack.metadata[name] for name in FIGURES if name in pack.metadata},
        "facts": [str(fact) for fact in pack.facts],
        "caveat": backend_of(pack.target).caveat(pack.target) or "",
        "parameters": [f"{parameter.name}: {parameter.type}" for parameter in pack.parameters],
    }


def _detail(pack: KernelPack, staged: Staged, sources: list[dict[str, str]]) -> dict[str, Any]:
    places = Places()
    stages = []
    for stage in staged.stages:
        numbers = [places.number(chain) for chain in stage.text.chains]
        stages.append({"name": stage.name, "lines": stage.text.lines, "places": numbers, "note": stage.note})
    loops = [_loop(loop, places) for loop in staged.loops]
    files = [_source(name, staged.files.get(name), sources) for name in places.files]
    return {"places": places.rows, "files": files, "stages": stages, "loops": loops}


def _loop(loop: Loop, places: Places) -> dict[str, Any]:
    steps = [{**vars(step), "chain": places.number(step.chain)} for step in loop.steps]
    return {"role": loop.role, "place": places.number(loop.chain), "steps": steps}


def _source(name: str, path: str | None, sources: list[dict[str, str]]) -> int:
    """Returns the number of a source file, which is kept once. Its text is "" where nobody named the op files."""
    text = Path(path).read_text(encoding="utf-8", errors="replace") if path is not None else ""
    entry = {"name": name, "text": text}
    if entry not in sources:
        sources.append(entry)
    return sources.index(entry)
