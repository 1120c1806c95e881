"""verify regenerates every kernel bit for bit, wherever and however it runs, and sees each thing that was altered."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kernelpack.errors import PackError
from kernelpack.opgen.build import Verified, verify
from kernelpack.pack.lock import read_lock

SOURCE = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr, NEGATE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32) * factor
    tl.store(out + offsets, -value if NEGATE else value, mask=mask)


@kp.jit
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0), axis=0))


@kp.op("scale(Tensor x, float factor, bool negate=False) -> Tensor", variants={"x": [tl.float16, tl.float32], "NEGATE": [False, True]})
def scale(x, factor, negate):
    out = kp.empty_like(x)
    scale_kernel[lambda meta: (kp.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), factor, BLOCK=256, NEGATE=negate)
    return out


@kp.op("total(Tensor x) -> Tensor", variants={"x": [tl.float32]})
def total(x):
    out = kp.empty((), x.dtype, x.device)
    sum_kernel[(1,)](x, out, x.numel(), BLOCK=1024)
    return out
"""
TARGETS = ["cpu:x86-64-v3", "cuda:sm_80"]


def build_in_a_process(folder: Path, seed: str, jobs: int) -> Path:
    """Builds the source in a process of its own, with nothing cached, and returns the library's folder."""
    folder.mkdir(parents=True)
    (folder / "my_ops.py").write_text(SOURCE)
    code = """
        import sys
        from kernelpack.opgen.build import build
        build(["my_ops.py"], namespace="mine", targets=sys.argv[2:], jobs=int(sys.argv[1]), cache=False)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(jobs), *TARGETS],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "mine"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_in_a_process(tmp_path_factory.mktemp("verify") / "first", "1", 1)


def verified(built: Path, source: Path | None = None, **options: object) -> Verified:
    return verify([source or built.parent / "my_ops.py"], namespace="mine", out=built, jobs=2, **options)


@pytest.fixture
def altered(built: Path, tmp_path: Path) -> Path:
    """A copy of the library without what linking left, to be altered."""
    import shutil

    (tmp_path / "my_ops.py").write_text(SOURCE)
    shutil.copytree(built, tmp_path / "mine", ignore=shutil.ignore_patterns("build", "cpp", "*.so"))
    return tmp_path / "mine"


@pytest.mark.slow  # CI compares with a lock file that was made elsewhere
def test_a_build_is_bit_identical_elsewhere(built: Path, tmp_path: Path) -> None:
    """Another process, hash seed, folder and number of jobs: packs, lock, C++, Python and both libraries are the same."""
    again = build_in_a_process(tmp_path / "another folder", "4711", 3)
    files = {
        path.relative_to(built) for path in built.rglob("*") if path.is_file() and "build" not in path.relative_to(built).parts
    }
    assert len([file for file in files if file.suffix == ".kpack"]) == len(read_lock(built / "ops.lock").hashes) > 10
    for file in sorted(files):
        assert (built / file).read_bytes() == (again / file).read_bytes(), file


def test_verify_finds_nothing_after_a_build(built: Path) -> None:
    found = verified(built)
    assert found.differences == ()
    assert len(found.packs) == len(read_lock(built / "ops.lock").hashes)


def test_one_byte_of_the_lock(altered: Path) -> None:
    lock = altered / "ops.lock"
    text = lock.read_text()
    last = text[-2]
    lock.write_text(text[:-2] + ("0" if last != "0" else "1") + "\n")
    (difference,) = verified(altered, targets=["cuda:sm_80"]).differences
    assert "for cuda:sm_80 differs: the lock file has" in difference
    assert verified(altered, targets=["cpu:x86-64-v3"]).differences == ()  # other targets are not compared
    lock.write_text(text.replace("sm_80", "sm_8", 1))
    with pytest.raises(Exception, match="sm_8"):
        verified(altered)


def test_one_line_of_a_kernel(altered: Path) -> None:
    source = altered.parent / "my_ops.py"
    source.write_text(SOURCE.replace("mask=mask).to(tl.float32) * factor", "mask=mask).to(tl.float32) * factor + 1"))
    differences = verified(altered, targets=["cpu:x86-64-v3"]).differences
    assert len(differences) == 4  # two dtypes, negated or not; sum_kernel is as it was
    assert all(text.startswith("scale_kernel-") and "differs" in text for text in differences)


def test_variants_that_came_and_went(altered: Path) -> None:
    source = altered.parent / "my_ops.py"
    source.write_text(
        SOURCE.replace(
            '"x": [tl.float16, tl.float32], "NEGATE": [False, True]', '"x": [tl.float32, tl.bfloat16], "NEGATE": [False, True]'
        )
    )
    differences = verified(altered, targets=["cpu:x86-64-v3"]).differences
    assert [text for text in differences if "is not in the lock file" in text and "bf16" in text] != []
    assert [text for text in differences if "the sources do not make it" in text and "-f16-" in text] != []


def test_a_comment_changes_nothing(altered: Path) -> None:
    source = altered.parent / "my_ops.py"
    source.write_text("# moved down\n\n" + SOURCE.replace("mask = offsets < n", "mask = offsets < n  # in bounds"))
    assert verified(altered, targets=["cpu:x86-64-v3"]).differences == ()


def test_line_information_moves_with_the_source(altered: Path) -> None:
    (altered.parent / "my_ops.py").write_text(f"# moved down\n\n{SOURCE}")
    differences = verified(altered, targets=["cuda:sm_80"]).differences
    assert differences != ()
    assert all("differs" in text for text in differences)


def test_packs_that_were_altered_or_are_missing(altered: Path) -> None:
    first, second, third = sorted((altered / "packs").glob("*x86_64_v3.kpack"))[:3]
    text = first.read_text()
    first.write_text(text[: len(text) // 2])
    second.unlink()
    data = bytearray(third.read_bytes())
    data[-40] = ord("A") if data[-40] != ord("A") else ord("B")
    third.write_bytes(data)
    differences = verified(altered, targets=["cpu:x86-64-v3"]).differences
    assert [name in text for name, text in zip((first.name, second.name, third.name), sorted(differences), strict=True)] == [
        True
    ] * 3
    assert any("does not exist" in text for text in differences)
    assert any("the image was altered" in text for text in differences)
    # a lock file that is kept with the sources is compared alone
    assert verified(altered, lock=altered / "ops.lock", targets=["cpu:x86-64-v3"]).differences == ()


def test_a_corrupt_or_missing_lock_is_refused(altered: Path) -> None:
    lock = altered / "ops.lock"
    lines = lock.read_text().split("\n")
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    lines[first] = lines[first][:-1]
    lock.write_text("\n".join(lines))
    with pytest.raises(PackError, match=rf"ops\.lock:{first + 1}: expected target, variant and SHA-256"):
        verified(altered)
    lock.unlink()
    with pytest.raises(PackError, match=r"ops\.lock does not exist(?s:.)*build the library first"):
        verified(altered)
