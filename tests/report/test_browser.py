"""The page in a browser: a line shows its lines on the other side, by mouse, touch and keys, and it fits a phone.

It needs `pip install -r requirements-browser.txt` and Chromium.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kernelpack.opgen.size import Part, Sizes
from kernelpack.report.page import Report, page
from kernelpack.report.plot import Figures, plot
from kernelpack.report.stages import Staged
from tests.report.conftest import SOURCE, line_of
from tests.report.test_page import HOSTILE, pack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("playwright") is None, reason="playwright is missing: pip install -r requirements-browser.txt"
    ),
]
DESKTOP, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def file(staged: dict[str, Staged], tmp_path_factory: pytest.TempPathFactory) -> Path:
    packs = [pack(target, entry=target, name=f"kernel-{number}.any") for number, target in enumerate(sorted(staged))]
    packs += [pack(name=HOSTILE, entry="hostile")]
    parts = (Part("multiply", "cuda:sm_90a", "compressed code", 3000), Part("multiply", "cpu:x86-64-v3", "linked code", 9000))
    sizes = Sizes(Path("libmy_ops.so"), 14000, (*parts, Part("", "", "runtime", 2000)))
    svg = plot(Figures("attention", "H100", "TFLOP/s", {HOSTILE: {"kernelpack": 2.0, "cudnn": 1.0}}))
    found = tmp_path_factory.mktemp("browser") / "report.html"
    found.write_text(page(Report(HOSTILE, packs, staged, sizes, [svg])))
    return found


class Tab:
    """A page of the browser that notes errors, dialogs and requests."""

    def __init__(self, browser: Any, file: Path, size: tuple[int, int], part: str) -> None:
        self.troubles: list[str] = []
        self.is_phone = size == PHONE
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, offline=True, has_touch=self.is_phone)
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("dialog", lambda dialog: (self.troubles.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.requests: list[str] = []
        self.page.goto(f"{file.as_uri()}#{part}")
        if part.startswith("kernel"):
            self.page.wait_for_selector("#right .row")

    def row(self, side: str, number: int) -> Any:
        """Returns a line of a side, which counts from 1."""
        return self.page.locator(f"#{side} .row").nth(number - 1).locator("i")

    def point_at(self, number: int) -> None:
        """Clicks on a line of source, or touches it on a phone."""
        row = self.row("left", number)
        (row.tap if self.is_phone else row.click)()

    def marked(self, side: str) -> list[str]:
        return list(self.page.locator(f"#{side} .row.strong span").all_text_contents())

    def choose(self, side: str, name: str) -> None:
        self.page.locator(f"#{side} [role=tab]", has_text=name).first.click()

    def end(self) -> None:
        assert self.troubles == []
        assert all(url.startswith(("file:", "blob:")) for url in self.requests)
        self.page.context.close()


@pytest.fixture
def tab(browser: Any, file: Path, request: pytest.FixtureRequest) -> Iterator[Tab]:
    size, part = request.param
    found = Tab(browser, file, size, part)
    yield found
    found.end()


@pytest.mark.parametrize("tab", [(DESKTOP, "kernel-1"), (PHONE, "kernel-1")], indirect=True)
def test_a_line_of_source_shows_its_lines_in_every_stage(tab: Tab) -> None:
    for stage, code in (
        ("ttir", "tt.dot"),
        ("ttgir", "warp_group_dot"),
        ("llir", "wgmma"),
        ("ptx", "wgmma"),
        ("sass", "HGMMA"),
    ):
        tab.choose("right", stage)
        tab.point_at(line_of("total = tl.dot"))
        assert tab.marked("left") == [SOURCE.splitlines()[line_of("total = tl.dot") - 1]]
        assert any(code in line for line in tab.marked("right")), stage
        tab.page.keyboard.press("Escape")
        assert tab.marked("right") == []


@pytest.mark.parametrize("tab", [(DESKTOP, "kernel-0")], indirect=True)
def test_pointing_at_assembly_shows_its_line_until_the_pointer_moves_on(tab: Tab) -> None:
    tab.choose("right", "asm")
    fused = tab.page.locator("#right .row", has_text="vfmadd231ps").first
    fused.scroll_into_view_if_needed()
    fused.locator("i").hover()
    assert tab.marked("left")[0].strip().startswith("total = tl.dot")
    assert "lines of asm" in tab.page.locator("#said").text_content()
    tab.row("left", line_of("tl.store(out")).hover()
    assert tab.marked("left")[0].strip().startswith("tl.store(out")


@pytest.mark.parametrize("tab", [(DESKTOP, "kernel-1")], indirect=True)
def test_keys_move_keep_and_let_go(tab: Tab) -> None:
    tab.choose("right", "ttgir")
    tab.page.locator("#left .code").focus()
    for _ in range(line_of("total = tl.dot")):
        tab.page.keyboard.press("ArrowDown")
    assert any("warp_group_dot" in line for line in tab.marked("right"))
    tab.page.keyboard.press("Enter")
    tab.row("left", 1).hover()
    assert any("warp_group_dot" in line for line in tab.marked("right"))
    tab.page.locator("#right [role=tab][aria-selected=true]").focus()
    tab.page.keyboard.press("ArrowRight")
    assert tab.page.locator("#right [role=tab][aria-selected=true]").text_content() == "llir"
    assert tab.page.evaluate("document.activeElement.textContent") == "llir"
    assert any("wgmma" in line for line in tab.marked("right"))


@pytest.mark.parametrize("tab", [(DESKTOP, "kernel-1")], indirect=True)
def test_the_timeline_shows_copies_that_run_ahead(tab: Tab) -> None:
    copies = tab.page.locator("#loops button", has_text="copy")
    assert copies.count() >= 4
    widths = copies.evaluate_all("all => all.map(one => one.offsetWidth)")
    wait = tab.page.locator("#loops button", has_text="wait").first.evaluate("one => one.offsetWidth")
    assert max(widths) > 3 * wait
    tab.page.locator("#loops button", has_text="dot").first.click()
    assert tab.marked("left")[0].strip().startswith("total = tl.dot")


@pytest.mark.parametrize("tab", [(DESKTOP, "variants"), (PHONE, "variants")], indirect=True)
def test_the_table_is_searched_sorted_and_leads_to_stages(tab: Tab) -> None:
    rows = tab.page.locator("#table tbody tr")
    assert rows.count() == 3
    tab.page.locator("#search").fill("cpu:x86 KERNEL-0")
    assert rows.count() == 1
    rows.locator("a").click()
    tab.page.wait_for_selector("#right .row")
    assert tab.page.locator("#which option:checked").text_content() == "kernel-0.any for cpu:x86-64-v3"
    tab.page.go_back()
    tab.page.locator("#search").fill("")
    if tab.page.locator("#order").is_visible():
        tab.page.locator("#order").select_option(label="variant")
    else:
        tab.page.locator("th button", has_text="variant").click()
    names = tab.page.locator("#table td[data-label=variant]").all_text_contents()
    assert len(names) == 3
    assert any("<script>" in name for name in names)


def test_a_long_table_shows_all_when_asked(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(Report("many", [pack(name=f"kernel-{n}.any", entry=f"k{n}") for n in range(250)], {}, None, [])))
    tab = Tab(browser, file, PHONE, "variants")
    rows = tab.page.locator("#table tbody tr")
    assert rows.count() == 200
    tab.page.locator("#search").fill("kernel-249")
    assert rows.count() == 1
    tab.page.locator("#search").fill("")
    tab.page.locator("#more").click()
    assert rows.count() == 250
    assert not tab.page.locator("#more").is_visible()
    assert tab.page.locator("nav a:visible").all_text_contents() == ["Variants"]
    tab.end()


@pytest.mark.parametrize("tab", [(DESKTOP, "sizes"), (PHONE, "sizes")], indirect=True)
def test_areas_of_the_map_are_as_large_as_their_parts(tab: Tab) -> None:
    boxes = tab.page.locator("#map div").evaluate_all("all => all.map(one => [one.title, one.offsetWidth * one.offsetHeight])")
    areas = {title.rpartition(", ")[2]: area for title, area in boxes}
    assert areas["9.0 kB"] / areas["3.0 kB"] == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("part", ["variants", "kernel-0", "kernel-1", "sizes", "benchmarks"])
def test_no_part_is_wider_than_the_screen(browser: Any, file: Path, size: tuple[int, int], part: str) -> None:
    tab = Tab(browser, file, size, part)
    assert tab.page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert tab.page.evaluate("window.scrollY") == 0
    assert tab.page.locator("main > section:visible").count() == 1
    tab.end()
