"""What a server finds on its path when it takes its kernels from an adopted folder: no compiler, and vLLM's own monitor from the start."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any

ABSENT = ("llvmlite", "cuda", "nvidia", "pybind11", "zstandard", "ninja")
"""Packages of kernelpack's extra [build]; numba brings llvmlite with vLLM."""


class Watch(MetaPathFinder):
    """Finds no module. It refuses those of compilers, and lets vLLM raise an error at anything that is compiled."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name == "vllm.v1.worker.cpu_worker":
            from vllm.utils import jit_monitor  # late: it is there by now

            jit_monitor.activate(mode="error")
            print("watched: nothing is to be compiled from here on", file=sys.stderr)


sys.meta_path.insert(0, Watch())
