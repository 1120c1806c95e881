"""Builds the wheel: the Python package, the C++ runtime that op libraries are built from, the op library, and kernelpack._C."""

import os
import shutil
import sys
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))
os.environ["KERNELPACK_LOAD_LIBRARY"] = "0"

from kernelpack import knobs


class BuildWithLibrary(build_py):
    """build_py, and beside the Python files: csrc/, and the op library for the targets of KERNELPACK_OP_TARGETS (default: this
    machine's)."""

    def run(self) -> None:
        package = Path(self.build_lib) / "kernelpack"
        if not self.editable_mode:
            shutil.rmtree(package, ignore_errors=True)  # what an earlier build left is not part of this one
        super().run()
        if self.editable_mode:  # a checkout has csrc/ beside the package, and builds its library by itself
            return
        shutil.copytree(ROOT / "csrc", package / "csrc", ignore=shutil.ignore_patterns("python"))
        self._build_library(package / "library")

    def _build_library(self, destination: Path) -> None:
        from kernelpack.cli.targets import op_library_targets
        from kernelpack.opgen.build import build
        from kernelpack.opgen.unbox import unbox

        targets = op_library_targets()
        if not targets:
            return
        folder = Path(self.build_lib).parent / "op_library"
        with Teller() as tell:
            tell(f"kernelpack: compiling the op library for {', '.join(map(str, targets))} ({knobs.OP_TARGETS.name})")
            built = build([ROOT / "ops"], namespace="kernelpack", targets=targets, out=folder, progress=tell.progress)
            tell("kernelpack: making its calls shorter for this torch")
            unbox(built.library)
        destination.mkdir(parents=True)
        for file in [path for pattern in ("*.py", "*.so", "*.json", "ops.lock") for path in built.directory.glob(pattern)]:
            shutil.copy2(file, destination)


class Teller:
    """Says how far a build is: to the output, which pip hides unless it is given -v, and every few seconds to the terminal."""

    def __enter__(self):
        hidden = not sys.stdout.isatty() and not os.environ.get("PIP_QUIET")
        try:
            self.terminal = open("/dev/tty", "w") if hidden else None
        except OSError:  # there is none
            self.terminal = None
        self.next = 0.0
        return self

    def __exit__(self, *problem):
        if self.terminal is not None:
            self.terminal.close()

    def __call__(self, text: str) -> None:
        print(text, flush=True)
        if self.terminal is not None:
            print(f"  {text}", file=self.terminal, flush=True)

    def progress(self, progress) -> None:
        print(f"  [{progress.done}/{progress.total}] {progress.what}", flush=True)
        if self.terminal is not None and progress.seconds >= self.next:
            self.next = progress.seconds + 5
            print(f"  kernelpack: {progress.done} of {progress.total} kernels", file=self.terminal, flush=True)


LAUNCHER = Pybind11Extension(
    "kernelpack._C",
    # images that are compressed are those of libraries
    sorted(
        str(path) for room in ("python", "kernels") for path in Path("csrc", room).glob("*.cpp") if path.stem != "zstd_image"
    ),
    include_dirs=["csrc"],
    cxx_std=17,
    extra_compile_args=["-Wall", "-Wextra"],
)

setup(
    packages=find_packages(include=["kernelpack", "kernelpack.*"], exclude=["kernelpack.library"]),
    package_data={
        "kernelpack": ["py.typed", "_C.pyi", "cmake/*.cmake"],
        "kernelpack.as_triton": ["on_path/triton/*.py"],
        "kernelpack.cli": ["project/*.in"],
        "kernelpack.opgen.emit": ["templates/*.in"],
        "kernelpack.report": ["*.html", "*.css", "*.js"],
    },
    ext_modules=[LAUNCHER],
    cmdclass={"build_py": BuildWithLibrary, "build_ext": build_ext},
)
