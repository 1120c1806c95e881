"""Builds the wheel with a .pth file beside its module: Python reads it when it starts."""

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithStartUp(build_py):
    def run(self) -> None:
        super().run()
        self.copy_file("kernelpack_as_triton.pth", self.build_lib)


setup(py_modules=["kernelpack_as_triton"], cmdclass={"build_py": BuildWithStartUp})
