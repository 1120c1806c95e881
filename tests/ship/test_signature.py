"""Where a signature is asked for, nothing of a folder runs unless its manifest is signed and all files are what was signed. Offline."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelpack.cli import main
from kernelpack.errors import BuildError, UntrustedFileError
from kernelpack.opgen.load import load as load_library
from kernelpack.ship.manifest import add_file, read_manifest
from kernelpack.ship.signature import check_signed, sign
from tests.ship.conftest import Key
from tests.ship.test_manifest import altered

ROOT = Path(__file__).parents[2]
LOAD = """
import socket, sys
socket.socket.connect = None  # nothing is asked of anybody
import kernelpack
try:
    print(kernelpack.load(sys.argv[1], public_key=sys.argv[2]).ops.scale)
except kernelpack.errors.UntrustedFileError as problem:
    print(problem)
print([name for name in sys.modules if name.startswith("kernelpack_library_")])
print("loaded" if any("libsample_ops" in line for line in open("/proc/self/maps")) else "nothing loaded")
"""


def load(folder: Path, public_key: Path, *, by_knob: bool = False) -> list[str]:
    """Loads a folder in a process of its own; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERNELPACK_LOAD_LIBRARY": "0"}
    environment |= {"KERNELPACK_REQUIRE_SIGNATURE": str(public_key)} if by_knob else {}
    program = LOAD.replace(", public_key=sys.argv[2]", "") if by_knob else LOAD
    command = [sys.executable, "-c", program, str(folder), str(public_key)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture
def signed(folder: Path, keys: tuple[Key, Key]) -> Path:
    sign(folder, keys[0].private)
    return folder


def test_a_signed_folder_loads_and_bytecode_beside_it_does_not_run(signed: Path, keys: tuple[Key, Key], tmp_path: Path) -> None:
    evil = tmp_path / "fakes.py"
    evil.write_text("print('evil')\n")
    cached = signed / "__pycache__" / f"fakes.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(evil), cfile=str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    said = load(signed, keys[0].public)
    assert said == [
        "sample.scale",
        "['kernelpack_library_sample', 'kernelpack_library_sample.host_runtime', 'kernelpack_library_sample.fakes']",
        "loaded",
    ]
    assert sorted(path.name for path in cached.parent.iterdir()) == [cached.name]


def test_an_altered_library_is_not_opened(signed: Path, keys: tuple[Key, Key]) -> None:
    altered("libsample_ops.so")(signed)
    said = load(signed, keys[0].public, by_knob=True)
    assert said[0] == f"{signed} is not what was signed: libsample_ops.so was altered: its SHA-256 is not that of the manifest"
    assert said[1].startswith("  to fix: ")
    assert said[2:] == ["[]", "nothing loaded"]


def test_a_library_that_was_loaded_before_is_asked_for_its_signature(
    folder: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = ModuleType("earlier")
    earlier.__file__ = str(folder / "__init__.py")
    monkeypatch.setitem(sys.modules, "earlier", earlier)
    assert load_library(folder) is earlier
    with pytest.raises(UntrustedFileError, match=r"is not signed: manifest.json.sig is missing"):
        load_library(folder, public_key=keys[0].public)
    sign(folder, keys[0].private)
    assert load_library(folder, public_key=keys[0].public) is earlier


def resigned_by(key: Key) -> Callable[[Path], object]:
    return lambda folder: ((folder / "manifest.json.sig").unlink(), sign(folder, key.private))


def test_what_is_not_what_was_signed_is_refused(signed: Path, keys: tuple[Key, Key]) -> None:
    signature = signed / "manifest.json.sig"
    changes: dict[str, tuple[Callable[[Path], object], str]] = {
        "unsigned": (lambda _: signature.unlink(), f"{signed} is not signed: manifest.json.sig is missing"),
        "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "is not signed: manifest.json is missing"),
        "wrong key": (resigned_by(keys[1]), r"is no signature of manifest.json by .*public.pem: Key mismatch"),
        "altered fakes": (altered("fakes.py"), "fakes.py was altered"),
        "altered manifest": (
            altered("manifest.json"),
            "manifest.json.sig is no signature of manifest.json by .*: Signature mismatch",
        ),
        "altered signature": (altered("manifest.json.sig"), "manifest.json.sig is no signature of manifest.json"),
        "empty signature": (lambda _: signature.write_text("{}"), "manifest.json.sig is no signature of manifest.json"),
        "added file": (lambda folder: (folder / "torch.py").touch(), "torch.py is not in the manifest"),
        "unboxed": (
            lambda folder: (folder / "libsample_ops.torch-2.13.0.so").touch(),
            "libsample_ops.torch-2.13.0.so is not in",
        ),
    }
    before = {path: path.read_bytes() for path in signed.iterdir() if path.is_file()}
    for change, said in changes.values():
        check_signed(signed, keys[0].public)
        change(signed)
        with pytest.raises(UntrustedFileError, match=said) as refused:
            check_signed(signed, keys[0].public)
        assert refused.value.cure
        for path in set(signed.iterdir()) - set(before):
            path.unlink() if path.is_file() else None
        for path, data in before.items():
            path.write_bytes(data)


def test_the_command_line_signs_and_verifies(folder: Path, keys: tuple[Key, Key], capsys: pytest.CaptureFixture[str]) -> None:
    verify = ["verify", "--manifest", str(folder), "--public-key", str(keys[0].public)]
    assert main(verify) == 1
    assert "is not signed: manifest.json.sig is missing\n  to fix: get the folder from its signer" in capsys.readouterr().err
    for _ in range(2):  # a signature is replaced
        assert main(["sign", str(folder), "--key", str(keys[0].private)]) == 0
    assert main(verify) == 0
    assert f"states, signed by the key of {keys[0].public}" in capsys.readouterr().out
    altered("fakes.py")(folder)
    assert main(verify) == 1
    assert main(["sign", str(folder), "--key", str(keys[0].private)]) == 1
    assert "is not signed: fakes.py was altered" in capsys.readouterr().err


def test_keys_that_are_none_are_refused(signed: Path, keys: tuple[Key, Key]) -> None:
    with pytest.raises(BuildError, match=r"public.pem is no private key that signs(.|\n)*to fix: openssl ecparam"):
        sign(signed, keys[0].public)
    with pytest.raises(BuildError, match=r"absent.pem is no private key that signs"):
        sign(signed, Path("absent.pem"))
    with pytest.raises(UntrustedFileError, match=r"key.pem is no public key of an elliptic curve(.|\n)*to fix: openssl ec"):
        check_signed(signed, keys[0].private)
    with pytest.raises(UntrustedFileError, match=r"the public key absent.pem does not exist"):
        check_signed(signed, Path("absent.pem"))


def test_a_missing_package_is_named_with_the_cure(signed: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    for call in (lambda: sign(signed, keys[0].private), lambda: check_signed(signed, keys[0].public)):
        with pytest.raises(BuildError, match=r"model_signing is not installed(.|\n)*to fix: pip install 'kernelpack\[sign\]'"):
            call()


def test_a_file_made_later_joins_the_manifest_and_ends_the_signature(signed: Path, keys: tuple[Key, Key]) -> None:
    """As kernelpack unbox does."""
    made = signed / "libsample_ops.torch-2.13.0.so"
    made.write_text("N10kernelpack")
    add_file(made)
    assert made.name in read_manifest(signed).files
    with pytest.raises(UntrustedFileError, match="Signature mismatch"):
        check_signed(signed, keys[0].public)
    sign(signed, keys[0].private)
    check_signed(signed, keys[0].public)
