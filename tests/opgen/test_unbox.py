"""Ops that torch calls without boxing do what they do through the stable ABI; what cannot be called so still goes that way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelpack.errors import BuildError
from kernelpack.opgen import unbox as unboxing
from kernelpack.opgen.build import Built
from kernelpack.opgen.unbox import source_of, unbox

ROOT = Path(__file__).parents[2]
RELEASE = torch.__version__.partition("+")[0]


def copy_of(built: Built, folder: Path) -> Path:
    """Copies a library, so that the tests of the stable ABI keep theirs as it is; returns the copy's folder."""
    return Path(shutil.copytree(built.directory, folder / "sample", ignore=shutil.ignore_patterns("build", "cpp", "packs")))


@pytest.fixture(scope="module")
def unboxed(sample_built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_of(sample_built, tmp_path_factory.mktemp("unboxed"))
    made = unbox(folder)
    assert made.path == folder / f"libsample_ops.torch-{RELEASE}.so"
    assert made.torch == RELEASE
    assert len(made.schemas) > 10
    return folder


def run(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True)


ASK = """
import json, re, sys, torch
torch.ops.load_library(sys.argv[1] + "/libsample_ops.so")
names = ["scale", "scale.out", "increment", "count_down", "fresh"]
lines = {name: re.findall("(?:CPU|CUDA): .*", torch._C._dispatch_dump("sample::" + name)) for name in names}
print(json.dumps({name: [":: (none)" not in line for line in found] for name, found in lines.items()}))
assert torch.equal(torch.ops.sample.scale(torch.ones(3), factor=3.0), torch.full((3,), 3.0))
x = torch.arange(4, dtype=torch.int32)
torch.ops.sample.increment(x, 5)
assert torch.equal(x, torch.arange(5, 9, dtype=torch.int32))
"""


def functions(folder: Path) -> tuple[dict[str, list[bool]], str]:
    """Returns whether torch knows the C++ signatures of ops' functions for CPUs and GPUs, which it infers from unboxed ones; and what loading the library wrote to stderr."""
    done = run(ASK, folder)
    return json.loads(done.stdout), done.stderr


def test_torch_calls_every_op_without_boxing(unboxed: Path) -> None:
    found, said = functions(unboxed)
    assert found == {name: [True] * 2 for name in found}
    assert said == ""


def test_ops_do_the_same(unboxed: Path) -> None:
    """All tests of the sample ops: every type of argument and result, refusals, memory, opcheck."""
    tests = [f"tests/opgen/{name}" for name in ("test_ops.py", "test_consumers.py")]
    only = "built_op every_type out_overload mutating lists bad_input out_lies leaks strides threads symbols cannot_be_read negated opcheck"
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", f"--basetemp={unboxed.parent / 'inner'}"]
    done = subprocess.run(
        [*command, "-k", " or ".join(only.split()), *tests],
        cwd=ROOT,
        env={**os.environ, "SAMPLE_LIBRARY": str(unboxed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert all(word in done.stdout for word in only.split())


IN_PLACE = """
import sys, torch
torch.ops.load_library(sys.argv[1] + "/libsample_ops.so")
increment, increment_given = torch.ops.sample.increment, torch.ops.sample.increment_given
x, y = torch.arange(4, dtype=torch.int32), torch.arange(4, dtype=torch.int32)
increment(x, 5)
increment_given(x, y)
increment_given(x, None)
print(x._version, y._version)
leaf = torch.ones(3, requires_grad=True)
inner = leaf * 2
increment(inner)
for failing in (lambda: increment(leaf), lambda: increment(leaf[:2]), lambda: inner.sum().backward()):
    try:
        failing()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
with torch.no_grad():
    increment(leaf)
print(inner.tolist(), leaf.tolist())
"""


def test_what_ops_write_to_has_a_new_version_and_no_gradient(unboxed: Path) -> None:
    assert run(IN_PLACE, unboxed).stdout.splitlines() == [
        "1 1",
        "a leaf Variable that requires grad is being used in an in-place operation.",
        "a view of a leaf Variable that requires grad is being used in an in-place operation.",
        "sample::increment has no gradient",
        "[3.0, 3.0, 3.0] [2.0, 2.0, 2.0]",
    ]


def test_another_release_of_torch_calls_them_through_the_stable_abi(unboxed: Path, sample_built: Built, tmp_path: Path) -> None:
    folder = copy_of(sample_built, tmp_path)
    shutil.copy(unboxed / f"libsample_ops.torch-{RELEASE}.so", folder / "libsample_ops.torch-1.13.1.so")
    found, said = functions(folder)
    assert found == {name: [False] * 2 for name in found}
    assert said == ""


def test_a_file_that_cannot_be_loaded_is_named_and_ops_work_without_it(sample_built: Built, tmp_path: Path) -> None:
    folder = copy_of(sample_built, tmp_path)
    broken = folder / f"libsample_ops.torch-{RELEASE}.so"
    broken.write_bytes(b"no library")
    found, said = functions(folder)
    assert found == {name: [False] * 2 for name in found}
    assert f"{broken} cannot be used" in said
    assert f"to fix: kernelpack unbox {folder / 'libsample_ops.so'}" in said


STRANGER = 12345


def of_a_stranger(file: Path) -> None:
    os.chown(file, STRANGER, STRANGER)


def for_all_to_write(file: Path) -> None:
    file.chmod(0o757)


def after_a_strangers_link(file: Path) -> None:
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))
    os.lchown(file, STRANGER, STRANGER)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
@pytest.mark.parametrize("change", [of_a_stranger, for_all_to_write, after_a_strangers_link])
def test_a_file_that_others_can_write_is_not_loaded(unboxed: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    """It stands beside the op library, where a stranger may put one: in a folder such as /tmp."""
    folder = Path(shutil.copytree(unboxed, tmp_path / "copy"))
    change(folder / f"libsample_ops.torch-{RELEASE}.so")
    found, said = functions(folder)
    assert found == {name: [False] * 2 for name in found}
    assert f"libsample_ops.torch-{RELEASE}.so is not loaded" in said
    assert f"to fix: remove it, then kernelpack unbox {folder / 'libsample_ops.so'}" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
def test_a_library_of_another_user_has_its_own_unboxed_one(unboxed: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(unboxed, tmp_path / "copy"))
    for file in folder.glob("*.so"):
        of_a_stranger(file)
    found, said = functions(folder)
    assert found == {name: [True] * 2 for name in found}
    assert said == ""


def test_a_file_of_another_version_of_the_interface_is_not_used(unboxed: Path, sample_built: Built, tmp_path: Path) -> None:
    folder = copy_of(sample_built, tmp_path)
    name = f"libsample_ops.torch-{RELEASE}.so"
    image = (unboxed / name).read_bytes()
    assert b"kernelpack_unboxing_2" in image
    (folder / name).write_bytes(image.replace(b"kernelpack_unboxing_2", b"kernelpack_unboxing_0"))
    found, said = functions(folder)
    assert found == {name: [False] * 2 for name in found}
    assert "cannot be used" in said


@pytest.mark.slow  # torch's headers compile once more
def test_an_op_that_is_newer_goes_through_the_stable_abi(
    sample_built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made for an older library knows another schema of the op; ops that are as they were stay unboxed."""
    folder = copy_of(sample_built, tmp_path)
    release, schemas = unboxing._loaded(folder / "libsample_ops.so", "sample")
    older = tuple(text.replace("int amount=1", "int amount=2") for text in schemas)
    assert older != schemas
    monkeypatch.setattr(unboxing, "_loaded", lambda *_: (release, older))
    unbox(folder)
    found, said = functions(folder)
    assert found.pop("increment") == [False] * 2
    assert found == {name: [True] * 2 for name in found}
    assert said == ""


def test_signatures_are_those_that_torch_has_for_schemas() -> None:
    every = (
        "f(Tensor x, Tensor? y, Tensor(a!) z, Tensor(b!)? w, int a, SymInt b, float c, bool d, ScalarType e, Device f, int? g, float? h, bool? i, "
        "ScalarType? j, Device? k, int[] l, SymInt[2] m, float[] n, bool[] o) -> ()"
    )
    signature = (
        "void(const at::Tensor&, const std::optional<at::Tensor>&, at::Tensor&, const std::optional<at::Tensor>&, int64_t, c10::SymInt, double, bool, at::ScalarType, "
        "at::Device, std::optional<int64_t>, std::optional<double>, std::optional<bool>, std::optional<at::ScalarType>, "
        "std::optional<at::Device>, at::ArrayRef<int64_t>, at::ArrayRef<c10::SymInt>, at::ArrayRef<double>, c10::List<bool>)"
    )
    text = source_of((every, "g(Tensor x) -> (Tensor low, int n, SymInt m, float f, bool b)"), "mine", "2.13.0")
    assert f"kp::unboxed_op<{signature}, 0xc>" in text  # writes to its third argument and its fourth
    assert "kp::unboxed_op<std::tuple<at::Tensor, int64_t, c10::SymInt, double, bool>(const at::Tensor&), 0x0>" in text


def test_folders_without_a_library_or_with_two_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="holds no op library"):
        unbox(tmp_path)
    for name in ("mine", "yours"):
        (tmp_path / f"lib{name}_ops.so").touch()
    with pytest.raises(BuildError, match=r"holds 2 op libraries(.|\n)*to fix: name one of them, such as .*libmine_ops.so"):
        unbox(tmp_path)


def test_a_torch_that_is_no_release_is_refused(sample_built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nightlies of one number have different classes, and the op library could not tell them apart."""
    monkeypatch.setattr(unboxing, "_ASK", "print('[\"2.14.0.dev20261101+cpu\", []]')")
    with pytest.raises(BuildError, match=r"torch 2\.14\.0\.dev20261101\+cpu is no release"):
        unbox(copy_of(sample_built, tmp_path))


def test_a_file_that_is_no_op_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libmine_ops.so").write_bytes(b"no library")
    with pytest.raises(BuildError, match=r"cannot be asked for its schemas: .*libmine_ops.so"):
        unbox(tmp_path)
