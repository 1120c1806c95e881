"""LLVM IR -> PTX: links libdevice where the kernel calls it, optimises, and prints PTX of the pinned ISA version."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from kernelpack.backends.cuda.assemble.objects import join_ptx, split_llir
from kernelpack.backends.cuda.assemble.toolchain import find_libdevice
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.machine.features import Features, features_of
from kernelpack.errors import CompilationError
from kernelpack.ir.libdevice import LIBDEVICE_PREFIX
from kernelpack.llvm.codegen import check_version, llvm

TRIPLE = "nvptx64-nvidia-cuda"


def llir_to_ptx(text: str, context: CudaContext) -> str:
    """Returns the PTX of a kernel, and after it that of functions with objects of their own. Raises CompilationError where LLVM
    refuses the code or libdevice is missing."""
    return join_ptx([emit_ptx(module, features_of(context.target)) for module in split_llir(text)])


def llir_to_ptx_image(text: str, context: CudaContext) -> bytes:
    """Returns the PTX of a kernel as the driver takes it: ended by a zero byte."""
    return emit_ptx(text, features_of(context.target)).encode() + b"\0"


@functools.cache
def target_machine(cpu: str, features: str) -> Any:
    check_version(
        22, "0.48", "code for NVIDIA GPUs"
    )  # older ones lack stmatrix, products of 8-bit floats and what states a kernel's threads
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Straight-line strength reduction would ask of every instruction that it reuses whether that may be poison, which takes
    # most of the time in long blocks. What this backend emits cannot overflow where it says so.
    llvm.set_option("kernelpack", "-enable-poison-reuse-guard=false")
    # the code generator's level 3 numbers values once more: the same PTX, for a sixth of its time
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, features=features, opt=2)


def emit_ptx(text: str, features: Features) -> str:
    machine = target_machine(features.name, f"+ptx{features.ptx}")
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as problem:
        raise CompilationError(f"LLVM refuses the generated code: {problem}", cure="this is a defect of kernelpack") from None
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    if f"@{LIBDEVICE_PREFIX}" in text:
        _link_libdevice(module)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # loops stay as written: ptxas unrolls the small ones, and unrolled loops of dots would only spill
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


def _link_libdevice(module: Any) -> None:
    wanted = [function.name for function in module.functions if function.name.startswith(LIBDEVICE_PREFIX)]
    library = llvm.parse_bitcode(_functions_of_libdevice(tuple(sorted(wanted))))
    library.triple, library.data_layout = module.triple, module.data_layout
    kernels = {function.name for function in module.functions if not function.is_declaration}
    module.link_in(library)
    for function in module.functions:
        if not function.is_declaration and function.name not in kernels:
            function.linkage = llvm.Linkage.internal


@functools.cache  # the kernels of an op call the same few; all of libdevice would be linked and optimised with each of them
def _functions_of_libdevice(wanted: tuple[str, ...]) -> bytes:
    """Returns the bitcode of the wanted functions and of what they call."""
    library = llvm.parse_bitcode(_libdevice())
    for function in library.functions:
        if not function.is_declaration and function.name not in wanted:
            function.linkage = llvm.Linkage.internal
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(library, llvm.create_pass_builder(target_machine("sm_80", ""), llvm.create_pipeline_tuning_options()))
    return bytes(library.as_bitcode())


@functools.cache
def _libdevice() -> bytes:
    path = find_libdevice()
    if path is None:
        raise CompilationError(
            "the kernel uses a function of NVIDIA's libdevice, and libdevice.10.bc was not found",
            cure="pip install nvidia-nvvm (it comes with nvidia-cuda-nvcc), or install the CUDA toolkit",
        )
    return Path(path).read_bytes()
