"""Modules and names of Triton's that have no meaning here: whoever imports one is told why, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kernelpack.errors import RefusedNameError


class Refusal(NamedTuple):
    """Why a name has no meaning, as the end of a sentence that begins with it, and what to use instead."""

    reason: str
    cure: str


_GLUON = Refusal(
    "is for Gluon, the language in which kernels state their layouts, and has no meaning here: kernelpack chooses layouts itself",
    "write the kernel in kernelpack.language; roles of warps, shared memory, TMA and wgmma by hand are in kernelpack.language.hopper",
)
_AHEAD_OF_TIME = Refusal(
    "writes C sources of a kernel for one signature, and does not exist here",
    "write the kernel's launch as a @kernelpack.op and run `kernelpack build FILE --namespace NAME --target cuda:sm_90a`: the library has "
    "a C entry point for each variant, with a header (serving_examples/plain_c); or call kernelpack.compile(ASTSource(...))",
)
_MLIR = Refusal(
    "is Triton's binding of MLIR and LLVM in C++, which kernelpack is not built on",
    "look at IR as text: kernel.asm, `kernelpack inspect`, `kernelpack opt`",
)
_FRONT_END = Refusal(
    "belongs to Triton's front end, which makes MLIR",
    "call ASTSource(kernel, signature, constexprs).make_ttir() for a kernel's ttir",
)
_EXTERN = Refusal(
    "calls functions of bitcode libraries, which kernelpack does not link",
    "use tl.extra.libdevice, or PTX by tl.inline_asm_elementwise",
)
_OWN_TYPES = Refusal("makes types of values for Triton's front end", "make a type of several values by @kernelpack.aggregate")
_LAUNCHER = Refusal(
    "belongs to the C launcher that Triton generates for each kernel: here all kernels have one, kernelpack._C",
    "launch by kernel[grid](...), or by the compiled kernel's own [grid](...)",
)
REFUSED: Mapping[str, Refusal] = {
    **{
        f"triton.experimental.gluon{name}": _GLUON
        for name in ("", ".amd", ".language", ".language.amd", ".language.nvidia", ".nvidia")
    },
    "triton.tools.compile": _AHEAD_OF_TIME,
    "triton.tools.link": _AHEAD_OF_TIME,
    **{f"triton._C.libtriton.{name}": _MLIR for name in ("gluon_ir", "interpreter", "ir", "llvm", "passes", "proton")},
    **{f"triton.compiler.code_generator.{name}": _FRONT_END for name in ("CodeGenerator", "ast_to_ttir")},
    "triton.language.semantic.TritonSemantic": _FRONT_END,
    **{f"triton.language.core.{name}": _EXTERN for name in ("dispatch", "extern", "extern_elementwise")},
    **{f"triton.language.core.{name}": _OWN_TYPES for name in ("base_type", "base_value")},
    **{
        f"triton.compiler.{name}": Refusal(
            "compiles IR that lies in a file, which is no source of a kernel here",
            "compile the kernel's function by ASTSource; `kernelpack opt FILE --target T` runs passes over IR",
        )
        for name in ("IRSource", "compiler.IRSource")
    },
    **{
        f"triton.backends.nvidia.driver.{name}": _LAUNCHER
        for name in ("CudaLauncher", "CudaUtils", "make_launcher", "make_tensordesc_arg")
    },
    "triton.language.extra.hip": Refusal(
        "is AMD's library of functions, and kernelpack launches nothing on GPUs of AMD",
        "use tl.extra.libdevice, which has the same functions for NVIDIA's GPUs and for CPUs",
    ),
    "triton.profiler.language": Refusal(
        "records events inside of kernels, which kernelpack's profiler does not",
        "time whole kernels: kernelpack.profiler.scope",
    ),
}
"""By Triton's names. A module stands for all that it has."""


def refused_part(module: str) -> str | None:
    """Returns the part of a module's name that has no meaning here, or None."""
    return next((refused for refused in REFUSED if module == refused or module.startswith(f"{refused}.")), None)


def refusal(name: str) -> RefusedNameError:
    """Returns the error that says why a name of Triton's has no meaning here."""
    reason, cure = REFUSED[name]
    error = RefusedNameError(f"{name} {reason}", cure=cure)
    # where it would be: Python passes over an error that names what `from home import name` asks for, and loses its text
    error.name = f"kernelpack.{name.rpartition('.')[0]}"
    return error


def refused_names(module: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module of kernelpack.triton: it refuses names of the table, and does not know others."""
    home = module.removeprefix("kernelpack.")

    def __getattr__(name: str) -> Any:
        for refused in (f"{home}.{name}", home):
            if refused in REFUSED and not name.startswith("__"):
                raise refusal(refused)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


class RefusedUse:
    """What a module of REFUSED has under a name, where packages import the module and define kernels by it whether they launch them or
    not. It can be called, as a decorator is, and launching what it gives raises RefusedNameError."""

    def __init__(self, refused: str) -> None:
        self._refused = refused

    def __getattr__(self, name: str) -> RefusedUse:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> RefusedUse:
        return self

    def __getitem__(self, grid: Any) -> Any:
        raise refusal(self._refused)

    def __bool__(self) -> bool:
        raise refusal(self._refused)

    def __iter__(self) -> Any:
        raise refusal(self._refused)


def names_refused_on_use(refused: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of what is imported as a module of REFUSED: it has every name, as a RefusedUse."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {refused!r} has no attribute {name!r}")
        return RefusedUse(refused)

    return __getattr__
