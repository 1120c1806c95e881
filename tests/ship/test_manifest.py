"""A folder that differs from its manifest is told by name, and its machine code does not run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpack.cli import main
from kernelpack.errors import PackError
from kernelpack.opgen.build import Built, build
from kernelpack.ship.manifest import compare, manifest_of, parse_manifest, read_manifest
from kernelpack.ship.sbom import sbom
from kernelpack.version import VERSION
from tests.opgen.conftest import HERE

ROOT = Path(__file__).parents[2]


def test_a_manifest_states_every_file_source_and_image(sample_built: Built, folder: Path) -> None:
    manifest = read_manifest(folder)
    lying = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {*manifest.files, "manifest.json"} == lying
    assert {(target, variant) for target, images in manifest.images.items() for variant in images} == {
        (str(pack.target), pack.variant) for pack in sample_built.packs
    }
    assert all(manifest.images[str(pack.target)][pack.variant] == pack.sha256 for pack in sample_built.packs)
    assert list(manifest.sources) == ["tests/opgen/sample_ops.py"]
    assert set(manifest.tools) == {"assembler", "kernelpack", "llvm"}
    assert compare(folder, manifest).sentences() == []
    text = (folder / "manifest.json").read_bytes()
    assert str(parse_manifest(text)).encode() == text
    assert str(ROOT).encode() not in text


def test_one_build_has_one_manifest_and_one_bill(sample_built: Built, folder: Path) -> None:
    """In whatever folder and order."""
    manifest, sources = read_manifest(folder), {"tests/opgen/sample_ops.py": HERE / "sample_ops.py"}
    files = [folder / name for name in reversed(manifest.files)]
    again = manifest_of("sample", VERSION, sample_built.packs[::-1], sources, folder, files)
    assert str(again) == (folder / "manifest.json").read_text()
    bill = sbom(folder / "libsample_ops.so", VERSION, manifest.tools, compressed=True)
    assert bill == (folder / "sbom.cdx.json").read_text()


@pytest.mark.slow
def test_a_build_in_another_folder_writes_the_same(sample_built: Built, tmp_path: Path) -> None:
    targets = ["cpu:native", "cpu:x86-64-v3", "cuda:sm_90a"]
    again = build([HERE / "sample_ops.py"], namespace="sample", targets=targets, out=tmp_path / "sample", jobs=2)
    for name in ("manifest.json", "sbom.cdx.json", "libsample_ops.so"):
        assert (again.directory / name).read_bytes() == (sample_built.directory / name).read_bytes()


def altered(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return change


CHANGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "library": (altered("libsample_ops.so"), ["libsample_ops.so was altered: its SHA-256 is not that of the manifest"]),
    "fakes": (altered("fakes.py"), ["fakes.py was altered: its SHA-256 is not that of the manifest"]),
    "missing": (lambda folder: (folder / "fakes.py").unlink(), ["fakes.py is missing"]),
    "left out": (lambda folder: shutil.rmtree(folder / "packs"), []),
    "added": (lambda folder: (folder / "fakes.so").write_text("x"), ["fakes.so is not in the manifest"]),
    "added package": (
        lambda folder: ((folder / "fakes").mkdir(), (folder / "fakes" / "__init__.py").touch()),
        ["fakes/__init__.py is not in the manifest"],
    ),
    "added link": (lambda folder: (folder / "fakes").symlink_to("/usr"), ["fakes is not in the manifest"]),
    "added deep": (
        lambda folder: ((folder / "cpp" / "build").mkdir(), (folder / "cpp" / "build" / "a.py").touch()),
        ["cpp/build/a.py is not in the manifest"],
    ),
    "of builds": (lambda folder: ((folder / "build").mkdir(), (folder / "build" / "a.o").touch()), []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_said_by_name(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, expected = CHANGES[name]
    change(folder)
    assert compare(folder, read_manifest(folder)).sentences() == expected
    assert main(["verify", "--manifest", str(folder), "--json"]) == (1 if expected else 0)
    assert json.loads(capsys.readouterr().out)["differences"] == expected


def test_verify_compares_sources(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = HERE / "sample_ops.py"
    assert main(["verify", str(source), "--manifest", str(folder)]) == 0
    assert f"verified: {len(read_manifest(folder).files)} files as {folder}/manifest.json states" in capsys.readouterr().out
    copy = tmp_path / "tests" / "opgen"
    copy.mkdir(parents=True)
    for place in (copy, copy.parent):
        (place / "__init__.py").touch()
    changed = Path(shutil.copy(source, copy))
    changed.write_text(source.read_text() + "\n")
    assert main(["verify", str(changed), "--manifest", str(folder)]) == 1
    assert f"{changed} is not the source of this build" in capsys.readouterr().out
    assert main(["verify", str(ROOT / "setup.py"), "--manifest", str(folder)]) == 1
    assert "states no source" in capsys.readouterr().err


LOAD = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
try:
    importlib.import_module("sample")
except ImportError as problem:
    print(problem)
print("loaded" if any("libsample_ops" in line for line in open("/proc/self/maps")) else "nothing loaded")
"""


def said_by_import(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder.parent)], capture_output=True, text=True, check=True, env={**os.environ}
    )
    return done.stdout


def test_altered_machine_code_does_not_run(folder: Path) -> None:
    """By import alone, without kernelpack: the byte that is altered is one of a kernel for GPUs or of the library's own."""
    assert said_by_import(folder) == "loaded\n"
    altered("libsample_ops.so")(folder)
    said = said_by_import(folder)
    assert "libsample_ops.so was not loaded: it was altered" in said
    assert "to fix: get the folder again, or build it again" in said
    assert "nothing loaded" in said
    (folder / "manifest.json").unlink()
    altered("libsample_ops.so")(folder)  # as it was
    assert said_by_import(folder) == "loaded\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "manifest.json is no manifest of this kernelpack"),
        ("[]", "manifest.json is no manifest of this kernelpack"),
        (
            "later",
            "manifest.json is no manifest of this kernelpack: kernelpack manifest: expected a whole number from 1 to 1, found 2",
        ),
    ],
)
def test_other_files_are_no_manifests(folder: Path, text: str, said: str) -> None:
    later = (folder / "manifest.json").read_text().replace('"kernelpack manifest": 1', '"kernelpack manifest": 2')
    (folder / "manifest.json").write_text(later if text == "later" else text)
    with pytest.raises(PackError, match=said):
        read_manifest(folder)


def test_a_manifest_names_nothing_outside_its_folder(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    for name in ("../fakes.py", "/etc/passwd", "a/../../b"):
        with pytest.raises(PackError, match="outside its folder"):
            parse_manifest(text.replace('"fakes.py"', json.dumps(name)).encode())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "kernelpack verify SOURCE --namespace NAME, or kernelpack verify --manifest DIR"),
        (["--public-key", "key.pem"], "--public-key is for manifests"),
        (["--manifest", "absent"], "absent/manifest.json does not exist"),
    ],
)
def test_what_to_verify_must_be_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *words]) == 1
    assert said in capsys.readouterr().err
