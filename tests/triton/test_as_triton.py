"""`import triton` means kernelpack where it is asked for, in the process or in every process, and means what it meant elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelpack import as_triton
from kernelpack.errors import StandInError
from kernelpack.version import LANGUAGE_VERSION

ROOT = Path(__file__).parents[2]


def python(code: str, *path: Path, program: str = sys.executable, **variables: str) -> str:
    """Returns what a program of its own prints."""
    environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0", "PYTHONPATH": os.pathsep.join(map(str, path)), **variables}
    done = subprocess.run([program, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def pypi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package `triton` of somebody else's."""
    folder = tmp_path_factory.mktemp("pypi")
    (folder / "triton").mkdir()
    (folder / "triton" / "__init__.py").write_text("__version__ = '9.9'\n")
    (folder / "triton" / "ops.py").write_text("")
    (folder / "triton-9.9.dist-info").mkdir()
    (folder / "triton-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 9.9\n")
    return folder


def test_importing_it_loads_no_compiler() -> None:
    """An engine imports Triton in each of its processes; few of them compile."""
    print_loaded = (
        "print(*(name for name in sys.modules if name.startswith('kernelpack.backends.') and name.endswith('.backend')))"
    )
    asked = (
        "import sys, triton.language, triton.runtime; from triton.backends import backends; backends['cpu'].driver.is_active()"
    )
    assert python(f"from kernelpack import as_triton; as_triton.install(); {asked}; {print_loaded}", ROOT).strip() == ""


def test_in_a_program(pypi: Path) -> None:
    code = """
        import importlib.metadata, importlib.util, sys
        from kernelpack import as_triton
        as_triton.install()
        as_triton.install()
        assert as_triton.installed()
        assert "torch" not in sys.modules and "kernelpack.triton" not in sys.modules  # nothing is imported before its time
        assert importlib.util.find_spec("triton") is not None and "kernelpack.triton" not in sys.modules
        assert importlib.metadata.version("triton") == "3.6.0"
        import triton, triton.runtime.driver, triton.language.extra.libdevice
        import kernelpack, kernelpack.triton
        assert triton is kernelpack.triton and triton.__version__ == "3.6.0"
        assert triton.__spec__.name == "kernelpack.triton"
        assert triton.runtime.driver is kernelpack.triton.runtime.driver
        assert triton.runtime.driver.active is not None, "the object, not the module of the same name"
        from triton.runtime.jit import JITFunction
        assert JITFunction is kernelpack.JITFunction
        from triton import knobs
        assert knobs is kernelpack.knobs
        for missing in ("triton.ops", "triton.language.nothing"):
            assert importlib.util.find_spec(missing) is None, "not PyPI's"
        assert importlib.util.find_spec("triton.experimental.gluon") is None, "who asks whether it is there goes without it"
        from triton.experimental import gluon
        from triton.experimental.gluon import language as gl
        try:
            gluon.jit(lambda: gl.program_id(0))[(1,)]()
        except ImportError as error:
            assert "Gluon" in str(error) and "kernelpack.language.hopper" in str(error), "who launches it is told why"
        else:
            raise AssertionError("gluon is refused")
        try:
            from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
        except ImportError as error:
            assert "Gluon" in str(error)
        else:
            raise AssertionError("gluon is refused")
        as_triton.uninstall()
        import triton
        assert triton.__version__ == importlib.metadata.version("triton") == "9.9"
        try:
            as_triton.install()
        except ImportError as error:
            print(error)
        """
    said = python(code, ROOT, pypi)
    assert f"triton was imported before, from {pypi}/triton/__init__.py" in said
    assert "KERNELPACK_AS_TRITON=1" in said


def test_what_torch_found_before_is_forgotten(pypi: Path) -> None:
    code = """
        from torch.utils._triton import has_triton_package
        assert not has_triton_package()
        from kernelpack import as_triton
        as_triton.install()
        assert has_triton_package()
        as_triton.uninstall()
        assert not has_triton_package()
        """
    python(code, ROOT)


def test_by_the_environment_once_kernelpack_is_imported(pypi: Path) -> None:
    code = "import kernelpack, triton; print(triton.__name__)"
    assert python(code, ROOT, pypi, KERNELPACK_AS_TRITON="1") == "kernelpack.triton\n"
    for off in ("0", ""):
        assert python(code, ROOT, pypi, KERNELPACK_AS_TRITON=off) == "triton\n"


def test_in_every_process(pypi: Path, tmp_path: Path) -> None:
    """The .pth file of the wheel kernelpack-as-triton, in an environment of its own: the program knows nothing of kernelpack."""
    built = tmp_path / "wheel"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built)]
    source = tmp_path / "source"
    source.mkdir()
    for file in (ROOT / "as_triton").iterdir():
        if file.is_file():
            (source / file.name).write_bytes(file.read_bytes())
    subprocess.run([*command, str(source)], check=True)
    (wheel,) = built.iterdir()
    home = tmp_path / "environment"
    venv.create(home)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = home / "lib" / version / "site-packages"
    (site / "a_first.pth").write_text(f"{ROOT}\n{pypi}\n{sysconfig.get_path('purelib')}\n")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)], check=True)
    assert {path.name for path in site.iterdir() if path.suffix in (".pth", ".py")} == {
        "a_first.pth", "kernelpack_as_triton.pth", "kernelpack_as_triton.py",
    }  # fmt: skip

    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import importlib.metadata, multiprocessing, subprocess, sys

        def means(queue=None):
            import triton
            said = f"{triton.__name__} {importlib.metadata.version('triton')}"
            return queue.put(said) if queue else said

        if __name__ == "__main__":
            assert not any(name.split(".")[0] in ("torch", "triton") for name in sys.modules), "Python starts as quickly as before"
            assert "kernelpack" not in sys.modules
            version = importlib.metadata.version("triton")
            assert "kernelpack" not in sys.modules, "torch asks while it is imported"
            found = [f"parent {version}"]
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                queue = context.Queue()
                child = context.Process(target=means, args=(queue,))
                child.start()
                found.append(f"{method} {queue.get()}")
                child.join()
            print("\\n".join([*found, means()]))
        """)
    )

    def run(**variables: str) -> list[str]:
        environment = {**os.environ, "KERNELPACK_LOAD_LIBRARY": "0", **variables}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run([home / "bin" / "python", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    own = f"kernelpack.triton {LANGUAGE_VERSION}"
    assert run(KERNELPACK_AS_TRITON="1") == [f"parent {LANGUAGE_VERSION}", f"fork {own}", f"spawn {own}", own]
    assert run(KERNELPACK_AS_TRITON="0") == ["parent 9.9", "fork triton 9.9", "spawn triton 9.9", "triton 9.9"]
    (site / "a_first.pth").unlink()
    absent = subprocess.run(
        [home / "bin" / "python", "-c", "print('runs')"],
        env={"KERNELPACK_AS_TRITON": "1"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert absent.stdout == "runs\n"
    assert "KERNELPACK_AS_TRITON is on, but kernelpack is not installed" in absent.stderr


def test_the_error_says_where_the_other_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", type(sys)("triton"))
    with pytest.raises(StandInError, match="from an unknown place"):
        as_triton.install()


def test_inductor_that_found_no_triton_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = SimpleNamespace(HAS_TRITON=False)
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.triton_compat", looked)
    with pytest.raises(StandInError, match="found no triton: Inductor does without"):
        as_triton.install()
    looked.HAS_TRITON = True
    as_triton.install()
    as_triton.uninstall()


def test_a_process_that_gets_the_path_takes_it_over(pypi: Path) -> None:
    code = """
        import os, subprocess, sys
        from kernelpack import as_triton
        as_triton.install()
        look = "import triton.language as tl, triton; from triton.runtime import driver; print(triton.__name__, tl.__name__, driver.active)"
        path = os.pathsep.join(sys.path)
        given = {**os.environ, "PYTHONPATH": path}
        said = subprocess.run([sys.executable, "-c", look], env=given, capture_output=True, text=True, check=True).stdout
        assert said.startswith("kernelpack.triton kernelpack.triton.language <kernelpack."), said
        as_triton.uninstall()
        assert not any("on_path" in folder for folder in sys.path)
        """
    python(code, pypi, ROOT)
