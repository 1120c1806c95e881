"""Optimises LLVM IR text and emits objects and assembly through llvmlite."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kernelpack.errors import BuildError, CompilationError
from kernelpack.lazy import LazyModule

llvm: Any = LazyModule("llvmlite.binding")


@dataclass(frozen=True)
class Machine:
    """What code is generated for: triple, CPU name and feature string as LLVM knows them."""

    triple: str
    cpu: str
    features: str = ""


def installed() -> str | None:
    """Returns the versions of llvmlite and LLVM; None where they are missing, and nothing compiles."""
    try:
        numbers = llvm.llvm_version_info
    except ImportError:
        return None
    return f"llvmlite {import_module('llvmlite').__version__}, LLVM {'.'.join(map(str, numbers))}"


def version() -> str:
    """Returns the versions that decide the emitted bytes."""
    return installed() or "none"


def check_version(least: int, llvmlite_version: str, what: str) -> None:
    """Raises BuildError where LLVM is older than `what` needs; `llvmlite_version` is the first llvmlite with one that will do."""
    if llvm.llvm_version_info[0] < least:
        raise BuildError(
            f"{what} needs LLVM {least} or later, and here is {version()}", cure=f"pip install 'llvmlite>={llvmlite_version}'"
        )


@functools.cache
def initialise() -> None:
    """Prepares LLVM for all its targets, once a process. Raises BuildError for one that is too old."""
    check_version(20, "0.45", "code for CPUs")  # older ones know no `splat (float 1.0)`
    # LLVM 22 lets an AVX-512 operation under a mask read memory itself, in place of a load under the same mask, and may take the two
    # apart again into a load without a mask, which reads beyond the end of tensors (tests/backends/cpu/test_masked_loads.py)
    llvm.set_option("kernelpack", "-disable-spill-fusing")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.cache
def _target_machine(machine: Machine) -> Any:
    initialise()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(cpu=machine.cpu, features=machine.features, opt=3, reloc="pic", codemodel="small")


def optimise(text: str, machine: Machine, *, level: int = 3, vectorise: bool = False) -> Any:
    """Parses, verifies and optimises a module and returns it. Raises CompilationError for IR that LLVM refuses."""
    target_machine = _target_machine(machine)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as problem:
        raise CompilationError(f"LLVM refuses the generated code: {problem}", cure="this is a defect of kernelpack") from None
    module.triple = machine.triple
    module.data_layout = str(target_machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = vectorise
    options.slp_vectorization = vectorise
    builder = llvm.create_pass_builder(target_machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def emit_code(text: str, machine: Machine) -> tuple[str, bytes]:
    """Returns the assembly and the relocatable ELF object of a module."""
    target_machine, module = _target_machine(machine), optimise(text, machine)
    copy = module.clone()  # code generation rewrites what it is given
    return str(target_machine.emit_assembly(copy)), bytes(target_machine.emit_object(module))


def emit_object(text: str, machine: Machine) -> bytes:
    """Returns the relocatable ELF object of a module."""
    return bytes(_target_machine(machine).emit_object(optimise(text, machine)))


def emit_assembly(text: str, machine: Machine) -> str:
    """Returns the assembly of a module."""
    return str(_target_machine(machine).emit_assembly(optimise(text, machine)))
