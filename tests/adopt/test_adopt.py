"""Records of launches, and the folders that they are compiled into: what is refused, what is compared, what the command prints."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch

from kernelpack.adopt import build
from kernelpack.adopt.kernels import licence_of
from kernelpack.adopt.op_file import op_text
from kernelpack.adopt.records import read_records
from kernelpack.backends.cpu.facts.features import native_target
from kernelpack.cli import main
from kernelpack.errors import BuildError
from kernelpack.runtime.packs import read_folder
from kernelpack.ship.manifest import compare, read_manifest
from kernelpack.target import Target
from tests.adopt.conftest import NAME, Recorded


def test_a_launch_is_noted_once_for_each_backend(recorded: Recorded) -> None:
    x = torch.arange(100.0)
    for _ in range(3):
        recorded.module.add[(1,)](x, torch.empty_like(x), 100, B=128)
    lines = [json.loads(line) for line in recorded.file.read_text().splitlines()]
    assert [(line["kernel"], line["backend"]) for line in lines] == [(f"{NAME}:add", "cpu"), (f"{NAME}:add", "cuda")]
    assert lines[0]["constants"] == [[[3], 128]]
    facts = {"tt.divisibility"} if x.data_ptr() % 16 == 0 else set()
    assert {name for _, found in lines[1]["facts"] for name, _ in found} == facts  # what the same call would be on a GPU


def test_warmups_are_noted_too(recorded: Recorded) -> None:
    recorded.module.add.warmup(torch.float16, torch.float16, 100, B=64, grid=(1,))
    assert '"*fp16"' in recorded.file.read_text()


def test_files_merge_and_lines_of_calls_are_passed_over(recorded: Recorded) -> None:
    lines = recorded.file.read_text().splitlines(keepends=True)
    many = recorded.folder / "many"
    many.write_text("".join(['{"op": "kernelpack::gelu"}\n', *lines * 20_000]))
    assert len(read_records([many, recorded.file]).variants) == len(lines)


def test_what_is_no_record_is_refused_with_its_line(recorded: Recorded) -> None:
    recorded.file.write_text(recorded.file.read_text() + '{"kernel": "a:b"}\n')
    with pytest.raises(BuildError, match=r"record:3: this is no line that KERNELPACK_TRACE wrote"):
        recorded.adopt()
    with pytest.raises(BuildError, match="nowhere cannot be read"):
        build.adopt([Path("nowhere")], targets=[native_target()], out=recorded.folder / "packs")


def test_a_record_does_not_write_into_other_files(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    other = recorded.folder / "notes"
    other.write_text("mine\n")
    monkeypatch.setenv("KERNELPACK_TRACE", str(other))
    recorded.again()
    x = torch.arange(100.0)
    with pytest.warns(RuntimeWarning, match="it holds something else"):
        recorded.module.add[(1,)](x, torch.empty_like(x), 100, B=128)
    assert other.read_text() == "mine\n"


def test_a_refused_kernel_is_listed_with_its_line_and_the_others_are_adopted(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads(recorded.file.read_text().splitlines()[0])
    refused = recorded.module.refused
    said |= {
        "kernel": f"{NAME}:refused",
        "source": refused.cache_key,
        "signature": {"x": "*i32", "out": "*i32"},
        "constants": [],
    }
    recorded.file.write_text(recorded.file.read_text() + json.dumps(said) + "\n")
    out = recorded.folder / "packs"
    command = ["adopt", str(recorded.file), "--target", str(native_target()), "--out", str(out), "-j", "1"]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert "adopted: 1 variant of 1 kernel" in printed
    assert f"licence unknown: {NAME}" in printed
    line = next(number for number, text in enumerate(Path(refused.file).read_text().splitlines(), 1) if "inline_asm" in text)
    assert f"{NAME}.py:{line}" in printed
    assert "it is PTX, which GPUs alone execute" in printed


def test_a_kernel_that_has_changed_since_is_refused(recorded: Recorded) -> None:
    recorded.again(lambda text: text.replace("constexpr(1)", "constexpr(2)"))
    with pytest.raises(BuildError, match=r"nothing was adopted.*its source, or what it calls, has changed"):
        recorded.adopt()


def test_kernels_that_are_not_here_are_refused(recorded: Recorded) -> None:
    said = json.loads(recorded.file.read_text().splitlines()[0])
    lines = [
        {**said, "kernel": "gone.away:kernel", "file": "/gone/away.py"},
        {**said, "kernel": f"{NAME}:outer.<locals>.inner"},
    ]
    recorded.file.write_text(recorded.file.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    problems = {one.kernel: one.problem.message for one in recorded.adopt().refused}
    assert "gone.away cannot be imported: ModuleNotFoundError" in problems["gone.away:kernel"]
    assert "kernels that a function makes when it is called are not found" in problems[f"{NAME}:outer.<locals>.inner"]


def test_targets_without_launches_and_folders_of_others_are_refused(recorded: Recorded) -> None:
    with pytest.raises(BuildError, match="the record has no launches for amdgpu"):
        recorded.adopt(target=Target.parse("amdgpu:gfx942"))
    others = recorded.folder / "others"
    others.mkdir()
    (others / "file").write_text("mine")
    with pytest.raises(BuildError, match="holds files that kernelpack did not write"):
        recorded.adopt(out=others)


def test_a_folder_is_compared_with_a_new_compilation(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    out = recorded.folder / "packs"
    recorded.adopt()
    assert not compare(out, read_manifest(out)).sentences()
    assert main(["verify", str(out), "-j", "1"]) == 0
    assert "1 variant compiled anew" in capsys.readouterr().out
    index = json.loads((out / "kernels.json").read_text())
    index["kernels"][0]["variants"][0]["image sha256"] = "0" * 64
    (out / "kernels.json").write_text(json.dumps(index))
    assert main(["verify", str(out), "-j", "1"]) == 1
    assert "has another image" in capsys.readouterr().out
    recorded.again(lambda text: text.replace("constexpr(1)", "constexpr(2)"))
    assert main(["verify", str(out), "-j", "1"]) == 0
    assert "not compared: kernels_of_others:add" in capsys.readouterr().out


def test_adopting_again_replaces_what_it_wrote(recorded: Recorded) -> None:
    out = recorded.folder / "packs"
    recorded.adopt()
    before = {path.name for path in out.iterdir()}
    x = torch.arange(100.0)
    recorded.module.add[(2,)](x, torch.empty_like(x), 100, B=64)
    assert recorded.adopt().variants == 2
    after = {path.name for path in out.iterdir()}
    assert len(after) == len(before)
    assert {name for name in after if name.endswith((".so", ".bin"))}.isdisjoint(before)


def test_the_same_record_gives_the_same_bytes(recorded: Recorded) -> None:
    folders = [recorded.folder / "one", recorded.folder / "two"]
    for out in folders:
        recorded.adopt(out)
    one, two = ({path.name: path.read_bytes() for path in out.iterdir()} for out in folders)
    assert one == two


def test_trace_lists_kernels(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(recorded.file)]) == 0
    assert "2 variants of 1 kernel launched from Python" in capsys.readouterr().out


def test_licences_are_those_that_packages_state() -> None:
    assert licence_of("pytest") == "MIT"
    assert licence_of("no-such-package") is None
    assert licence_of(None) is None


def test_variants_that_a_search_tried_with_other_options_are_left_out(recorded: Recorded) -> None:
    said = json.loads(recorded.file.read_text().splitlines()[1])
    search = {name: said[name] for name in ("kernel", "package", "version", "source")}
    search |= {"search": [], "config": {"B": 128, "num_warps": 8}}
    lines = [said, {**said, "options": {"num_warps": 8}}, {**said, "options": {"num_warps": 2}}, search]
    recorded.file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [one.said["options"] for one in read_records([recorded.file]).variants] == [{"num_warps": 8}]


def test_an_op_of_a_recorded_kernel_runs(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["adopt", str(recorded.file), "--op", "add", "--out", str(recorded.folder)]
    assert main(command) == 0
    assert "wrote" in capsys.readouterr().out
    written = runpy.run_path(str(recorded.folder / "add.py"))["add"]
    assert str(written.schema) == "add(Tensor x, Tensor(b!) out, int n) -> ()"
    assert written.host.launches  # it becomes C++
    x = torch.arange(100.0)
    out = torch.empty_like(x)
    written(x, out, 100)
    assert bool((out == x + 1).all())
    assert main(command) == 1
    assert "exists, and nothing is overwritten" in capsys.readouterr().err


def test_ops_of_several_variants_choose_among_them(recorded: Recorded) -> None:
    x = torch.arange(100, dtype=torch.float16)
    recorded.module.add[(2,)](x, torch.empty_like(x), 100, B=64)
    _, text = op_text(read_records([recorded.file]), f"{NAME}:add")
    assert '"add(Tensor x, Tensor(b!) out, int n, int B) -> ()"' in text
    assert '"x": [tl.float32, tl.float16]' in text
    assert '"B": [128, 64]' in text
    assert "kernel[(1,)](x, out, n, B=B)" in text


def test_ops_of_kernels_that_were_not_recorded_are_refused(recorded: Recorded) -> None:
    with pytest.raises(BuildError, match=f"the record has no kernels 'ad'.*\n.*recorded are {NAME}:add"):
        op_text(read_records([recorded.file]), "ad")


def test_a_line_may_be_written_by_hand(recorded: Recorded) -> None:
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "B": "constexpr"}
    said = {"kernel": f"{NAME}:add", "backend": "cpu", "signature": signature, "constants": {"B": 256}}
    lines = [said, {**said, "constants": {"C": 256}}]
    recorded.file.write_text(json.dumps(lines[0]) + "\n")
    recorded.adopt()
    recorded.again()
    index = read_folder(recorded.folder / "packs")
    assert [variant.said["constants"] for variant in index.variants] == [[[[3], 256]]]
    assert index.variants[0].source == recorded.module.add.cache_key
    recorded.file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(BuildError, match="record:2: the signature has no C"):
        recorded.adopt()
