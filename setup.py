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
    """build_py, and beside the Python files: csrc/, and the op library for the targets of KERNELPACK_OP_TARGETS."""

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
        targets = [] if knobs.OP_TARGETS.get() == "none" else knobs.OP_TARGETS.get().split(",")
        if not targets:
            return
        from kernelpack.opgen.build import build
        from kernelpack.opgen.unbox import unbox

        folder = Path(self.build_lib).parent / "op_library"
        built = build([ROOT / "ops"], namespace="kernelpack", targets=targets, out=folder, progress=_tell)
        unbox(built.library)
        destination.mkdir(parents=True)
        for file in [*built.directory.glob("*.py"), *built.directory.glob("*.so"), built.directory / "ops.lock"]:
            shutil.copy2(file, destination)


def _tell(progress) -> None:
    print(f"  [{progress.done}/{progress.total}] {progress.what}", flush=True)


LAUNCHER = Pybind11Extension(
    "kernelpack._C",
    sorted([*map(str, Path("csrc/python").glob("*.cpp")), *map(str, Path("csrc/kernels").glob("*.cpp"))]),
    include_dirs=["csrc"],
    cxx_std=17,
    extra_compile_args=["-Wall", "-Wextra"],
)

setup(
    packages=find_packages(include=["kernelpack", "kernelpack.*"], exclude=["kernelpack.library"]),
    package_data={"kernelpack": ["py.typed", "_C.pyi"], "kernelpack.opgen": ["templates/*.in"]},
    ext_modules=[LAUNCHER],
    cmdclass={"build_py": BuildWithLibrary, "build_ext": build_ext},
)
