"""The CUDA backend as the rest of the project sees it: targets, argument facts, tools, launches. What compiles is in stages.py."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelpack.backends.base import CSRC, Backend, Device, Failed, LauncherSource, Opened, Stage, Tool, llvm_tool
from kernelpack.backends.cuda.assemble.cubin import without_line_tables
from kernelpack.backends.cuda.assemble.toolchain import (
    disassemble,
    find_libdevice,
    find_nvdisasm,
    find_ptxas,
    libdevice_digest,
    nvjitlink_version,
    ptxas_name,
    ptxas_version,
)
from kernelpack.backends.cuda.device.driver import device_capability, gpus
from kernelpack.backends.cuda.device.host_driver import CUDADriver
from kernelpack.backends.cuda.device.open import open_image
from kernelpack.backends.cuda.machine.features import ARCHITECTURES, PTX_FEATURE, features_of, runnable
from kernelpack.compiled import DescriptorForm
from kernelpack.context import Hook
from kernelpack.errors import OutOfResources, TargetError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, RANGE, REACHES, ArgumentProperty, integers, numbers_and_pointers, pointers
from kernelpack.ir.core import Operation
from kernelpack.lazy import LazyModule
from kernelpack.llvm import codegen
from kernelpack.options import Options
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.analysis.axis_info import AxisInfoAnalysis
    from kernelpack.backends.cuda import stages
    from kernelpack.backends.cuda.context import Attempt, CudaContext
    from kernelpack.compiled import CompiledKernel
else:
    stages = LazyModule("kernelpack.backends.cuda.stages")

_LINE_INFORMATION = re.compile(
    r"^(\t\.(loc|file)\b.*|\t\.section\t\.debug_.*|\$L__(tmp|func_begin|func_end)\d+:|\s*//.*)\n", re.MULTILINE
)


class CUDABackend(Backend):
    """Compiles for NVIDIA GPUs from sm_80 to sm_90a, without a GPU or a driver."""

    name = "cuda"
    unused_options = frozenset({"checked"})
    image_kind = "cubin"
    dispatch_key = "CUDA"
    launcher = LauncherSource(
        "kernelpack::cuda_launcher",
        CSRC / "kernels" / "cuda.h",
        tuple(CSRC / "kernels" / f"{name}.cpp" for name in ("cuda", "cuda_driver", "tensor_map")),
    )
    machine_code = "sass"
    notes = ("schedule",)
    line_information = True

    def resolve_target(self, target: Target) -> Target:
        if target.arch == "native":
            target = Target(self.name, _native(), target.features)
        features_of(target)
        if set(target.features) - {PTX_FEATURE}:
            raise TargetError(
                f"target {target}: the only feature of cuda targets is {PTX_FEATURE}, which the driver compiles for newer GPUs",
                cure=f"write {self.name}:{target.arch}",
            )
        if target.features and features_of(target).is_alone:
            raise TargetError(
                f"target {target}: code for {target.arch} runs on that architecture alone, PTX for it serves no other",
                cure="write cuda:sm_80+ptx for a fallback, or cuda:sm_90a",
            )
        return target

    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        return stages.stages(target, options)

    def context(self, target: Target, options: Options, entry: str, attempt: Any, hooks: Sequence[Hook]) -> CudaContext:
        return stages.CudaContext(target, options, entry, attempt, hooks=hooks)

    def attempts(self, target: Target, options: Options) -> Sequence[Attempt]:
        most = options.num_stages
        return [stages.Attempt(slots, wait) for wait in (False, True) for slots in ((most, most - 1) if most > 2 else (most,))]

    def may_help(self, attempt: Attempt, failed: Failed) -> bool:
        if failed.context.is_checked:
            return False
        if attempt.waits_at_once != failed.context.waits_at_once:
            return bool(failed.context.runs_on)  # the assembler may follow products that end where they are issued
        return failed.stage == "ttgir" and isinstance(failed.problem, OutOfResources)  # smaller buffers may fit

    def properties(self) -> Sequence[ArgumentProperty]:
        return (
            ArgumentProperty("equal_to", 1, EQUAL_TO, integers),
            ArgumentProperty("tt.divisibility", 16, DIVISIBLE_BY, numbers_and_pointers),
            ArgumentProperty(RANGE, 32, REACHES, pointers),
        )

    def targets(self) -> Sequence[Target]:
        return tuple(Target(self.name, name) for name in ARCHITECTURES)

    def tools(self) -> Sequence[Tool]:
        ptxas, linker, libdevice, nvdisasm = find_ptxas(), nvjitlink_version(), find_libdevice(), find_nvdisasm()
        return (
            llvm_tool(),
            Tool(
                "ptxas",
                f"{ptxas_version(ptxas)}, {ptxas}" if ptxas else None,
                linker is None,
                "nvJitLink assembles PTX",
                "pip install nvidia-cuda-nvcc",
            ),
            Tool("nvJitLink", linker, ptxas is None, "ptxas assembles PTX", "pip install cuda-python nvidia-nvjitlink"),
            Tool(
                "libdevice",
                str(libdevice) if libdevice else None,
                False,
                "kernels that call sin, pow, erf, ... do not compile",
                "pip install nvidia-cuda-nvcc",
            ),
            Tool(
                "nvdisasm",
                str(nvdisasm) if nvdisasm else None,
                False,
                "inspect prints no sass",
                "pip install nvidia-cuda-nvdisasm",
            ),
        )

    def devices(self) -> Sequence[Device]:
        return tuple(Device(gpu.name, tuple(Target(self.name, row.name) for row in runnable(gpu.capability))) for gpu in gpus())

    def disassemble(self, kernel: CompiledKernel) -> str:
        return disassemble(kernel.image)

    def without_lines(self, image: bytes) -> bytes:
        return without_line_tables(image)

    def code_of(self, text: str) -> str:
        text = _LINE_INFORMATION.sub("", text)
        return re.sub(
            r"\.align \d+ (\w+_param_)", r"\1", text
        )  # of what a parameter points to: PTX carries it along, and nothing reads it

    def open(self, kernel: CompiledKernel) -> Opened:
        return open_image(kernel)

    def driver(self) -> type[CUDADriver]:
        return CUDADriver

    def descriptor_form(self, access: Operation, facts: AxisInfoAnalysis, target: Target) -> DescriptorForm:
        return stages.descriptor_form(access, facts, target)

    def supports(self, op: Operation, target: Target) -> str | None:
        return stages.supports(op, target)

    def tool_versions(self) -> Mapping[str, str]:
        ptxas = find_ptxas()
        if ptxas is not None:
            assembler = ptxas_name(ptxas)
        else:
            assembler = f"nvJitLink {nvjitlink_version()}"
        return {"llvm": codegen.version(), "assembler": assembler}

    def cache_key(self) -> str:
        return f"{super().cache_key()} libdevice {libdevice_digest()}"


@functools.cache
def _native() -> str:
    """Returns the architecture of the first GPU. Raises TargetError where there is none, or one that is not built for."""
    capability = device_capability()
    if capability is None:
        raise TargetError(
            "target cuda:native: this machine has no CUDA driver or no GPU",
            cure=f"name an architecture: {', '.join('cuda:' + name for name in ARCHITECTURES)}",
        )
    if runnable(capability):
        return runnable(capability)[0].name
    major, minor = capability
    raise TargetError(
        f"target cuda:native: the GPU has compute capability {major}.{minor}, which is not supported",
        cure=f"supported are {', '.join(ARCHITECTURES)}",
    )
