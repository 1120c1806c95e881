"""Triton's tools.compile and tools.link are refused by name: an op file and `kernelpack build` do what they do together."""

from __future__ import annotations

from typing import Any

from kernelpack.errors import BuildError


def refused(tool: str) -> BuildError:
    """Returns the error that says what to use instead of a tool."""
    return BuildError(
        f"triton.tools.{tool}, which writes C sources of a kernel for one signature, does not exist here",
        cure="write the kernel's launch as a @kernelpack.op and run `kernelpack build FILE --namespace NAME --target cuda:sm_90a`: the "
        "library has a C entry point for each variant, with a header (serving_examples/plain_c); or call kernelpack.compile(ASTSource(...))",
    )


def names_of(tool: str) -> Any:
    """Returns the `__getattr__` of a module that stands for a tool."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refused(tool)

    return __getattr__
