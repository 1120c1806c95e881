"""kernelpack inspect shows variants with their figures, and every stage of their way through the compiler."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelpack.cli import main
from kernelpack.errors import BuildError
from tests.cli.terminal import environment, kernelpack, on_terminal


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["inspect", *words]) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["inspect", *words]) == 1
    return capsys.readouterr().err


STAGES = {
    "cpu:x86-64-v4": {
        "ttir": "tt.func public @",
        "cpu_ttir": "tt.func public @",
        "tiles": "threshold_kernel",
        "llir": "define ",
        "asm": "zmm",
    },
    "cpu:x86-64-v3": {"asm": "ymm"},
    "cpu:aarch64": {"asm": "fcmgt"},
    "cuda:sm_90a": {
        "ttir": "tt.func public @",
        "ttgir": "#ttg.linear",
        "llir": "ptx_kernel",
        "ptx": ".target sm_90a",
        "schedule": "no loop has iterations that overlap",
        "sass": "EXIT",
    },
}


@pytest.mark.parametrize(("target", "stage"), [(target, stage) for target, stages in STAGES.items() for stage in stages])
def test_every_stage_of_an_op_file_prints(capsys: pytest.CaptureFixture[str], source: Path, target: str, stage: str) -> None:
    text = shown(capsys, str(source), "--target", target, "--variant", "f32.any", "--stage", stage)
    assert STAGES[target][stage] in text


def test_every_stage_is_tested(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    text = shown(capsys, str(source), "--target", "cpu:x86-64-v4,cuda:sm_90a")
    listed = {line.strip() for line in text.splitlines()[-2:]}
    assert listed == {
        f"cpu: {', '.join([*STAGES['cpu:x86-64-v4']][:-1])}, object, asm",
        f"cuda: {', '.join([*STAGES['cuda:sm_90a']][:-2])}, cubin, schedule, sass",
    }


def test_a_stage_needs_no_tool_of_those_after_it(
    capsys: pytest.CaptureFixture[str], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(ptx: str, context: object) -> bytes:
        raise BuildError("there is no assembler")

    monkeypatch.setattr("kernelpack.backends.cuda.stages.ptx_to_cubin", missing)
    words = (str(source), "--target", "cuda:sm_90a", "--variant", "f32.any", "--stage")
    assert ".target sm_90a" in shown(capsys, *words, "ptx")
    assert "there is no assembler" in error(capsys, *words, "cubin")


def test_code_that_deserves_doubt_comes_with_a_note(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    assert main(["inspect", str(source), "--target", "cpu:aarch64", "--variant", "f32.any", "--stage", "asm"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "note: cpu:aarch64: its code was run by an emulator alone, and its speed was never measured\n"
    assert "emulator" not in printed.out


def test_images_are_written_as_bytes(source: Path, tmp_path: Path) -> None:
    words = ["inspect", str(source), "--target", "cuda:sm_80", "--variant", "f32.any", "--stage", "cubin", "--json"]
    record = json.loads(kernelpack(*words).stdout)
    assert [entry["stage"] for entry in record] == ["cubin"]
    image = tmp_path / "kernel.cubin"
    with open(image, "wb") as file:
        subprocess.run([sys.executable, "-m", "kernelpack", *words[:-1]], env=environment(), stdout=file, check=True)
    assert image.read_bytes() == base64.b64decode(record[0]["base64"])
    assert image.read_bytes().startswith(b"\x7fELF")


def test_images_never_reach_a_terminal(source: Path) -> None:
    code, said = on_terminal("inspect", str(source), "--variant", "f32.any", "--stage", "object", columns=80)
    assert code == 1
    assert "object is binary" in said
    assert "ELF" not in said


def test_table_of_a_built_library(capsys: pytest.CaptureFixture[str], built: dict[str, Any]) -> None:
    lines = shown(capsys, built["directory"]).splitlines()
    header = next(line.split() for line in lines if "regs" in line)
    assert header == ["variant", "size", "regs", "spills", "shared", "warps"]
    row = next(line.split() for line in lines if line.startswith("  threshold_kernel-f32.aligned"))
    assert row[2] in ("B", "kB")
    assert int(row[3]) > 0
    assert row[4:] == ["0", "0", "4"]


def test_the_bytes_of_a_library_by_op_and_target(
    capsys: pytest.CaptureFixture[str], built: dict[str, Any], source: Path
) -> None:
    text = shown(capsys, built["directory"], "--size")
    assert text.startswith(f"{built['library']}  ")
    head = next(line for line in text.splitlines() if "code of kernels" in line)
    assert head.split()[3:] == [*built["targets"], "all"]
    assert any(line.split()[0] == "threshold" for line in text.splitlines() if line.strip())
    record = json.loads(shown(capsys, built["directory"], "--size", "--json"))
    assert record["bytes"] == Path(built["library"]).stat().st_size == sum(part["bytes"] for part in record["parts"])
    assert "--size takes one folder\n  to fix: name the folder of a built library" in error(capsys, str(source), "--size")


def test_json_of_a_library_and_of_its_source_agree(capsys: pytest.CaptureFixture[str], built: dict[str, Any]) -> None:
    source = str(Path(built["directory"]).parent / "my_ops.py")
    packs = json.loads(shown(capsys, built["directory"], "--json"))
    made = json.loads(shown(capsys, source, "--namespace", "clitest", "--target", ",".join(built["targets"]), "--json"))
    assert len(packs) == built["kernels"]
    assert packs == made


def test_packs_have_machine_code_and_nothing_before_it(capsys: pytest.CaptureFixture[str], built: dict[str, Any]) -> None:
    folder = built["directory"]
    assert "ret" in shown(capsys, folder, "--target", "cpu:native", "--variant", "f32.any", "--stage", "asm")
    assert "EXIT" in shown(capsys, folder, "--variant", "f32.any", "--stage", "sass")
    said = error(capsys, folder, "--stage", "ttgir")
    assert "there is no stage 'ttgir'" in said
    assert "need the op files" in said
    assert {"  cpu: object, asm", "  cuda: cubin, sass"} <= set(shown(capsys, folder).splitlines())


def test_specialised_variants_can_be_shown_alone(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    table = shown(capsys, str(source), "--target", "cuda:sm_80", "--variant", "*aligned")
    assert "f32.aligned" in table
    assert ".any" not in table


def test_libraries_and_op_files_are_inspected_apart(
    capsys: pytest.CaptureFixture[str], source: Path, built: dict[str, Any], tmp_path: Path
) -> None:
    assert "are inspected apart" in error(capsys, str(source), built["directory"])
    (tmp_path / "libmy_ops.so").touch()
    assert f"{tmp_path} holds a library without its packs" in error(capsys, str(source), str(tmp_path))


def test_one_variant_shows_all_that_its_pack_states(capsys: pytest.CaptureFixture[str], built: dict[str, Any]) -> None:
    text = shown(capsys, built["directory"], "--variant", "f16.aligned")
    assert "parameter: x !tt.ptr<f16>\n" in text
    assert "constexpr: BLOCK = 256\n" in text
    assert "fact: x:tt.divisibility=16\n" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stage", "ttgri", "--target", "cuda:sm_80"], "there is no stage 'ttgri'; did you mean 'ttgir'?"),
        (["--op", "treshold"], "there is no op 'treshold'; did you mean 'threshold'?"),
        (["--variant", "f64"], "no variant has 'f64' in its name"),
    ],
)
def test_names_that_do_not_exist_name_the_nearest(
    capsys: pytest.CaptureFixture[str], source: Path, words: list[str], message: str
) -> None:
    assert message in error(capsys, str(source), *words)


def test_library_lacks_a_target(capsys: pytest.CaptureFixture[str], built: dict[str, Any]) -> None:
    said = error(capsys, built["directory"], "--target", "cuda:sm_90a")
    assert "the library has nothing for cuda:sm_90a" in said
    assert "it was built for cpu:" in said


SHARED = """

@kp.op("threshold_(Tensor(a!) x, float level) -> ()", variants={"x": [tl.float32]})
def threshold_(x, level):
    kp.check(x.is_contiguous(), "x must be contiguous")
    threshold_kernel[lambda meta: (kp.cdiv(x.numel(), meta["BLOCK"]),)](x, x, x.numel(), level, BLOCK=256)
"""


def test_kernels_that_ops_share_are_found_by_each_of_them(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    source.write_text(source.read_text() + SHARED)
    for op, variants in (("threshold", 2), ("threshold_", 1)):
        found = json.loads(shown(capsys, str(source), "--op", op, "--target", "cpu:x86-64-v3", "--json"))
        assert len(found) == variants
        assert {tuple(record["ops"]) for record in found if "f32" in record["variant"]} == {("threshold", "threshold_")}
