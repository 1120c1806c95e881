"""The wheel holds what serving, launching and building ops need, and works far from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow  # a wheel takes a minute to compile

OPS = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * 2, mask=mask)


@kp.op("double(Tensor x) -> Tensor", variants={"x": [tl.float32]})
def double(x):
    kp.check(x.is_contiguous(), "x must be contiguous")
    out = kp.empty_like(x)
    double_kernel[(kp.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out
"""


def run(code: str, *arguments: object, cwd: Path, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(path), "KERNELPACK_CACHE": "0"},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


IN_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which a copy of the checkout was installed, with one op for one CPU level. `terminal.txt` beside it is what a
    terminal showed meanwhile."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "library")
    for folder in ("kernelpack", "csrc"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in"):
        shutil.copy(ROOT / name, source / name)
    (source / "README.md").write_text("a copy for a test")
    (source / "ops").mkdir()
    (source / "ops" / "double.py").write_text(OPS)
    target = tmp_path_factory.mktemp("installed")
    command = [
        sys.executable,
        "-c",
        IN_A_TERMINAL,
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(target),
    ]
    done = subprocess.run(
        [*command, "."],
        capture_output=True,
        text=True,
        cwd=source,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "KERNELPACK_OP_TARGETS": "cpu:x86-64-v3", "CFLAGS": "-O0"},
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    (target / "terminal.txt").write_text(done.stdout)
    shutil.rmtree(source)
    return target


def test_a_terminal_shows_what_pip_is_compiling(installed: Path) -> None:
    """pip itself shows nothing of it without -v."""
    said = (installed / "terminal.txt").read_text()
    assert "kernelpack: compiling the op library for cpu:x86-64-v3 (KERNELPACK_OP_TARGETS)" in said
    assert "kernelpack: 1 of 1 kernels" in said


def test_the_wheel_serves_its_ops_with_torch_alone(installed: Path, tmp_path: Path) -> None:
    """Neither kernelpack._C nor what builds ops is imported for torch.ops."""
    said = run(
        """
        import sys, torch, kernelpack
        assert kernelpack.__file__.startswith(sys.argv[1]), kernelpack.__file__
        x = torch.randn(1000)
        assert torch.equal(torch.ops.kernelpack.double(x), x * 2)
        out = torch.compile(torch.ops.kernelpack.double, fullgraph=True, dynamic=True, backend="aot_eager")(x)
        assert torch.equal(out, x * 2)
        loaded = {name.partition(".")[0] for name in sys.modules} | {name for name in sys.modules if "kernelpack" in name}
        print(sorted(loaded & {"kernelpack._C", "llvmlite", "kernelpack.frontend", "kernelpack.backends", "ninja"}))
        """,
        installed,
        cwd=tmp_path,
        path=installed,
    )
    assert said.strip() == "[]"


def test_the_wheel_launches_and_builds_ops_elsewhere(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OPS)
    said = run(
        """
        import sys, torch, kernelpack as kp
        from pathlib import Path
        sys.path.insert(0, ".")
        import mine
        from kernelpack import _C
        from kernelpack.opgen.build import build
        assert _C.__file__.startswith(sys.argv[1])
        x = torch.randn(1000)
        assert torch.equal(mine.double(x), x * 2)  # over the JIT
        built = build([Path("mine.py")], namespace="mine", targets=["cpu:x86-64-v3"], jobs=2)
        kp.load(built.directory)
        assert torch.equal(torch.ops.mine.double(x), x * 2)
        print(built.directory)
        """,
        installed,
        cwd=tmp_path,
        path=installed,
    )
    assert said.strip() == str(tmp_path / "mine")


def test_the_wheel_holds_no_build_leftovers(installed: Path) -> None:
    package = installed / "kernelpack"
    assert sorted(path.name for path in (package / "library").iterdir() if path.name != "__pycache__") == [
        "__init__.py",
        "fakes.py",
        "host_runtime.py",
        "libkernelpack_ops.so",
        f"libkernelpack_ops.torch-{version('torch').partition('+')[0]}.so",
        "manifest.json",
        "ops.lock",
        "sbom.cdx.json",
    ]
    assert [path.name for path in package.glob("_C.*.so")] != []
    assert {path.name for path in (package / "csrc").iterdir()} == {"kernels", "nativert", "ops", "simt", "unboxed"}
    assert (package / "py.typed").is_file()
    assert not (installed / "tests").exists()
    for library in (package / "library").glob("*_ops*.so"):
        assert str(ROOT).encode() not in library.read_bytes()


def test_a_library_of_a_higher_level_than_the_cpu_has_is_not_registered(installed: Path, tmp_path: Path) -> None:
    """A level that no CPU has stands in for one that this CPU has not."""
    library = tmp_path / "high"
    shutil.copytree(installed / "kernelpack" / "library", library, ignore=shutil.ignore_patterns("*.torch-*", "manifest.json"))
    file = library / "libkernelpack_ops.so"
    assert b"cpu:x86-64-v3\0" in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(b"cpu:x86-64-v3\0", b"cpu:x86-64+v9\0"))
    said = run(
        """
        import os
        os.environ["KERNELPACK_LOAD_LIBRARY"] = "0"
        import torch, kernelpack
        try:
            kernelpack.load("high")
        except ImportError as error:
            print(error)
        print(hasattr(torch.ops.kernelpack, "double"))
        """,
        cwd=tmp_path,
        path=ROOT,
    )
    assert said.startswith(f"{file} was not registered: this library holds no code for cpu:x86-64-v")
    assert "; it holds cpu:x86-64+v9\n  to fix: kernelpack build" in said
    assert said.splitlines()[-1] == "False"
