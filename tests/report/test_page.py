"""The page is one file that loads nothing, and what it shows is data: no text of a source, a name or a figure becomes part of the page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kernelpack.files import generated
from kernelpack.opgen.size import Part, Sizes
from kernelpack.options import Options
from kernelpack.pack.format import KernelPack
from kernelpack.report.page import Report, page
from kernelpack.report.plot import Figures, plot
from kernelpack.report.stages import Staged
from kernelpack.target import Target
from tests.report.conftest import FILE, SOURCE, line_of

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}&amp;\u2028\ud800\xe9"


class Reader(HTMLParser):
    """Collects the elements of a page, with their attributes, and the texts of scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def data_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(text).scripts[0])
    return found


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def pack(target: str = "cuda:sm_90a", entry: str = "k", name: str = "kernel-f16.any") -> KernelPack:
    return KernelPack(
        ops=("multiply",), variant=name, target=Target.parse(target), image_kind="cubin", entry=entry, parameters=(),
        constexprs={"BLOCK": HOSTILE}, options=Options(), facts=(), metadata={"registers": 40}, tools={"ptxas": "1"}, image=b"code",
    )  # fmt: skip


def report(staged: dict[str, Staged], *, plots: list[str] | None = None, title: str = "a report") -> str:
    packs = [pack(target, entry=target) for target in staged]
    sizes = Sizes(Path("/home/somebody/libmy_ops.so"), 30, (Part("multiply", "cuda:sm_90a", HOSTILE, 30),))
    return page(Report(title, packs, staged, sizes, plots or []))


def test_names_and_sources_are_data_alone(staged: dict[str, Staged]) -> None:
    figures = Figures(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: {"kernelpack": 2.0, HOSTILE: 1.0}})
    hostile = read(report(staged, title=HOSTILE, plots=[plot(figures)]))
    plain_figures = Figures("a", "a", "a", {"a": {"kernelpack": 2.0, "b": 1.0}})
    plain = read(report(staged, plots=[plot(plain_figures)]))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert len(hostile.scripts) == 2
    found = data_of(report(staged))
    assert found["sizes"]["parts"][0]["kind"] == HOSTILE
    assert found["variants"][0]["config"].startswith(f"BLOCK={HOSTILE}")
    assert unpacked(found["sources"]) == [{"name": FILE, "text": SOURCE}]


def test_it_loads_nothing_and_its_policy_allows_its_own_script_alone(staged: dict[str, Staged]) -> None:
    text = report(staged)
    reader = read(text)
    assert not [name for _, attributes in reader.elements for name in attributes if name in ("src", "srcset", "action", "data")]
    links = [attributes["href"] for _, attributes in reader.elements if "href" in attributes]
    assert links
    assert all(str(link).startswith("#") for link in links)
    assert not [name for _, attributes in reader.elements for name in attributes if name.startswith("on")]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    (policy,) = (attributes["content"] for tag, attributes in reader.elements if tag == "meta" and "http-equiv" in attributes)
    digest = base64.b64encode(hashlib.sha256(reader.scripts[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_it_is_the_same_for_the_same_input_and_names_no_place_of_this_machine(staged: dict[str, Staged], source: Path) -> None:
    text = report(staged)
    assert text == report(staged)
    assert text.isascii()
    found = data_of(text)
    everything = json.dumps([unpacked(one) for one in [*found["details"], found["sources"]]]) + text
    assert str(source.parent) not in everything
    assert "/home/somebody" not in everything


def test_kernelpack_knows_the_page_as_its_own(staged: dict[str, Staged], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report(staged))
    assert generated.is_own(file)


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu:x86-64-v3"])
def test_a_line_of_a_stage_leads_to_its_line_of_source(staged: dict[str, Staged], target: str) -> None:
    found = data_of(report(staged))
    (number,) = (variant["detail"] for variant in found["variants"] if variant["target"] == target)
    detail = unpacked(found["details"][number])
    (stage,) = (stage for stage in detail["stages"] if stage["name"] == "ttir")
    (place,) = (place for line, place in zip(stage["lines"], stage["places"], strict=True) if "tt.dot" in line)
    file, line, caller = detail["places"][place - 1]
    assert (unpacked(found["sources"])[detail["files"][file]]["name"], line, caller) == (FILE, line_of("tl.dot"), 0)
    for one in detail["stages"]:
        assert len(one["lines"]) == len(one["places"])
        assert all(0 <= place <= len(detail["places"]) for place in one["places"])
