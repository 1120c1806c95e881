"""kernelpack report writes one page of op files or of a built library, and says what of it is left out."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from kernelpack.cli import main


def data_of(file: Path) -> dict[str, Any]:
    text = re.search(r'id="data">(.*?)</script>', file.read_text(), re.DOTALL)
    assert text is not None
    found: dict[str, Any] = json.loads(text[1])
    return found


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def stages_of(data: dict[str, Any], number: int) -> list[str]:
    return [stage["name"] for stage in unpacked(data["details"][number])["stages"]]


def write(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["report", *words]) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["report", *words]) == 1
    return capsys.readouterr().err


def test_op_files_give_every_stage(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--target", "cpu:x86-64-v3,cuda:sm_90a", "--variant", "f32.any", "--out", str(page), "-j", "1")
    assert re.fullmatch(rf"wrote {page}  [\d.]+ kB, 2 kernels\n", write(capsys, str(source), *words))
    data = data_of(page)
    assert data["sizes"] is None
    for variant in data["variants"]:
        gpu = ["ttir", "ttgir", "llir", "ptx", "sass", "schedule"]
        expected = gpu if variant["target"] == "cuda:sm_90a" else ["ttir", "cpu_ttir", "tiles", "llir", "asm"]
        assert stages_of(data, variant["detail"]) == expected
    assert unpacked(data["sources"]) == [{"name": "my_ops.py", "text": source.read_text()}]


def test_a_limit_leaves_stages_out_and_no_kernel(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = (str(source), "--target", "cuda:sm_90a,cuda:sm_80", "--limit", "2", "--out", str(page), "-j", "1")
    assert "the stages of 2 of them; --op, --variant and --limit choose others" in write(capsys, *words)
    variants = data_of(page)["variants"]
    assert len(variants) == 8
    assert {variant["target"] for variant in variants if variant["detail"] is not None} == {"cuda:sm_80", "cuda:sm_90a"}
    first = page.read_bytes()
    write(capsys, *words)
    assert page.read_bytes() == first


def test_a_built_library_gives_machine_code_and_sizes(
    capsys: pytest.CaptureFixture[str], built: dict[str, Any], tmp_path: Path
) -> None:
    folder, page = Path(built["library"]).parent, tmp_path / "page.html"
    said = write(capsys, str(folder), "--variant", "f32.any", "--out", str(page))
    assert "machine code alone: name the op files beside the folder for source and stages" in said
    data = data_of(page)
    names = {variant["target"]: stages_of(data, variant["detail"]) for variant in data["variants"]}
    (cpu,) = (target for target in names if target.startswith("cpu:"))
    assert names == {cpu: ["asm"], "cuda:sm_80": ["sass"]}
    assert (
        sum(part["bytes"] for part in data["sizes"]["parts"]) == data["sizes"]["total"] == Path(built["library"]).stat().st_size
    )
    assert data["sizes"]["library"] == "libclitest_ops.so"
    (sass,) = unpacked(data["details"][next(v["detail"] for v in data["variants"] if v["target"] == "cuda:sm_80")])["stages"]
    assert any(sass["places"])  # packs have line tables, and the page says that their source is not here
    assert [one["text"] for one in unpacked(data["sources"])] == [""]


def test_a_library_with_its_op_files_gives_both(
    capsys: pytest.CaptureFixture[str], built: dict[str, Any], tmp_path: Path
) -> None:
    folder, page = Path(built["library"]).parent, tmp_path / "page.html"
    sources = folder.parent / "my_ops.py"
    write(capsys, str(folder), str(sources), "--target", "cuda:sm_80", "--variant", "f32.any", "--out", str(page), "-j", "1")
    data = data_of(page)
    assert [variant["target"] for variant in data["variants"]] == ["cuda:sm_80"]
    assert stages_of(data, 0) == ["ttir", "ttgir", "llir", "ptx", "sass", "schedule"]
    assert data["sizes"]["total"] > 0


def test_benchmarks_are_drawn(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    page, figures = tmp_path / "page.html", tmp_path / "matmul-cpu.json"
    row = {"case": "bf16 2048", "unit": "GFLOP/s", "ours": 2.0, "peer": "stock torch", "theirs": 1.0}
    figures.write_text(json.dumps({"machine": {"cpu": "EPYC", "cores": 2}, "versions": {}, "rows": [row]}))
    write(
        capsys,
        str(source),
        "--target",
        "cuda:sm_80",
        "--limit",
        "0",
        "--benchmark",
        str(figures),
        "--out",
        str(page),
        "-j",
        "1",
    )
    text = page.read_text()
    assert 'aria-label="matmul, GFLOP/s"' in text
    assert "EPYC, 2 cores" in text
    assert "stock torch" in text


def test_nothing_of_the_users_is_overwritten(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>my own page</p>")
    said = error(capsys, str(source), "--target", "cuda:sm_80", "--out", str(page))
    assert "exists, and kernelpack did not write it" in said
    assert page.read_text() == "<p>my own page</p>"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["FOLDER", "FOLDER"], "a report shows one built library"),
        (["FOLDER", "--namespace", "x"], "the built library says its namespace"),
        (["FOLDER", "--target", "cuda:sm_90a"], "has nothing for cuda:sm_90a"),
        (["FOLDER", "OTHER"], "comes from"),
        (["FOLDER", "--op", "treshold"], "threshold"),
        (["FOLDER", "--variant", "f64"], "no variant has 'f64' in its name"),
        (["nowhere.py"], "nowhere.py does not exist"),
        (["FOLDER", "--benchmark", "nowhere.json"], "nowhere.json"),
        (["FOLDER", "--benchmark", "OTHER"], "holds no figures"),
    ],
)
def test_mistakes_are_named_with_their_cure(
    capsys: pytest.CaptureFixture[str], built: dict[str, Any], tmp_path: Path, words: list[str], said: str
) -> None:
    other = tmp_path / "other.py"
    source = (Path(built["library"]).parent.parent / "my_ops.py").read_text()
    other.write_text(source.replace("threshold", "limit"))
    places = {"FOLDER": str(Path(built["library"]).parent), "OTHER": str(other)}
    page = tmp_path / "page.html"
    found = error(capsys, *(places.get(word, word) for word in words), "--out", str(page))
    assert said in found
    assert "to fix:" in found
    assert not page.exists()


def test_a_folder_that_lost_its_library_is_refused(
    capsys: pytest.CaptureFixture[str], built: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(Path(built["library"]).parent / "packs", tmp_path / "folder" / "packs")
    assert "is no folder that kernelpack build wrote" in error(capsys, str(tmp_path / "folder"))


@pytest.mark.parametrize("limit", ["-1", "many", "9999999", "\N{SUPERSCRIPT TWO}"])
def test_a_limit_is_a_number(capsys: pytest.CaptureFixture[str], limit: str) -> None:
    with pytest.raises(SystemExit):
        main(["report", "x.py", f"--limit={limit}"])
    assert "is no number of kernels; write --limit 12" in capsys.readouterr().err
