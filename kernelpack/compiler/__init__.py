"""From ttir to an image for one target (stages.py). Its other names are those that code written for Triton imports from here."""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel
    from kernelpack.errors import CompilationError
    from kernelpack.runtime.ahead_of_time import ASTSource, compile, make_backend

__getattr__ = lazy_names(
    __name__,
    {
        "compiled": ("CompiledKernel",),
        "errors": ("CompilationError",),
        "runtime.ahead_of_time": ("ASTSource", "compile", "make_backend"),
    },
    ("compiler", "errors"),
)

__all__ = ["ASTSource", "CompilationError", "CompiledKernel", "compile", "make_backend"]
