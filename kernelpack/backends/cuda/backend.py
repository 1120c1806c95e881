"""The CUDA backend: its stages, targets and argument facts."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.base import CSRC, Backend, Device, Failed, LauncherSource, Opened, Stage, Tool
from kernelpack.backends.cuda.assemble.cubin import without_line_tables
from kernelpack.backends.cuda.assemble.llir_to_ptx import llir_to_ptx, llir_to_ptx_image
from kernelpack.backends.cuda.assemble.ptx_to_cubin import ptx_to_cubin, while_ptxas_starts
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
from kernelpack.backends.cuda.context import Attempt, CudaContext
from kernelpack.backends.cuda.device.driver import device_capability, gpus
from kernelpack.backends.cuda.device.host_driver import CUDADriver
from kernelpack.backends.cuda.device.open import open_image
from kernelpack.backends.cuda.lowering import LOWERINGS
from kernelpack.backends.cuda.lowering.calls import why_inlined
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.machine.dialect import TTNG
from kernelpack.backends.cuda.machine.features import (
    ARCHITECTURES,
    LANES,
    MAX_THREADS,
    Feature,
    Features,
    features_of,
    having,
    runnable,
)
from kernelpack.backends.cuda.machine.tensor_map import (
    ALIGNMENT,
    TensorMap,
    begins_known,
    ends_known,
    kernel_makes,
    tensor_map_of,
)
from kernelpack.backends.cuda.ttir_to_ttgir import SCHEDULE, TTGIR
from kernelpack.backends.gpu.passes.narrow_offsets import RANGE
from kernelpack.compiled import DESCRIPTOR, POINTERS, DescriptorForm
from kernelpack.context import Hook
from kernelpack.errors import OutOfResources, TargetError, UnsupportedError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, REACHES, ArgumentProperty, integers, numbers_and_pointers, pointers
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import operand
from kernelpack.ir.dialects.descriptors import ACCESSES
from kernelpack.ir.libdevice import LIBDEVICE_PREFIX
from kernelpack.ir.types import FloatType, IntegerType, PointerType, Type, element_of
from kernelpack.llvm.codegen import version as llvm_version
from kernelpack.options import Options
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.compiled import CompiledKernel

PTX_FEATURE = "ptx"
"""`cuda:sm_80+ptx`: the image is PTX of a low ISA version, which drivers compile for sm_80 and everything newer."""
_INTEGERS = (1, 8, 16, 32, 64)
_MOVES = frozenset({"arith.constant", "arith.select", "arith.bitcast", "math.absf"})
"""What arith and math do to bits as they are."""
_LINE_INFORMATION = re.compile(
    r"^(\t\.(loc|file)\b.*|\t\.section\t\.debug_.*|\$L__(tmp|func_begin|func_end)\d+:|\s*//.*)\n", re.MULTILINE
)
_STRUCTURE = frozenset(
    {
        "builtin.module",
        "tt.func",
        "tt.return",
        "scf.yield",
        "scf.condition",
        "tt.reduce.return",
        "tt.scan.return",
        "tt.map_elementwise.return",
        "ttg.role",
        "ttg.warp_return",
    }
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
    notes = (SCHEDULE,)
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
        _check(options, features_of(target))
        first: dict[str, Stage] = {"ttgir": TTGIR, "llir": ttgir_to_llir}
        if PTX_FEATURE in target.features:
            return {**first, "ptx": llir_to_ptx_image}
        return {**first, "ptx": while_ptxas_starts(llir_to_ptx), "cubin": ptx_to_cubin}

    def context(self, target: Target, options: Options, entry: str, attempt: Any, hooks: Sequence[Hook]) -> CudaContext:
        return CudaContext(target, options, entry, attempt, hooks=hooks)

    def attempts(self, target: Target, options: Options) -> Sequence[Attempt]:
        most = options.num_stages
        return [Attempt(stages, wait) for wait in (False, True) for stages in ((most, most - 1) if most > 2 else (most,))]

    def may_help(self, attempt: Attempt, failed: Failed) -> bool:
        if failed.context.is_checked:
            return False
        if attempt.waits_at_once != failed.context.waits_at_once:
            return bool(failed.context.runs_on)  # the assembler may follow products that end where they are issued
        return failed.stage == TTGIR.name and isinstance(failed.problem, OutOfResources)  # smaller buffers may fit

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
            Tool("LLVM", llvm_version(), True, "no kernel compiles", "pip install llvmlite"),
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
        make = operand(access, "desc").defining_op
        assert make is not None
        if access.name not in ACCESSES or Feature.TMA not in features_of(target).has:
            return POINTERS
        made_by_kernel = kernel_makes(make, facts)
        if not made_by_kernel and not isinstance(tensor_map_of(make, facts), TensorMap):
            return POINTERS
        if begins_known(access, make, facts) and ends_known(access, make, facts):
            return DESCRIPTOR
        return DescriptorForm(True, ALIGNMENT) if made_by_kernel and begins_known(access, make, facts) else POINTERS

    def supports(self, op: Operation, target: Target) -> str | None:
        if (op.name in ACCESSES or op.name == "tt.make_tensor_descriptor") and Feature.TMA in features_of(target).has:
            return None
        if op.name == "tt.call" and (reason := why_inlined(op)) is not None:
            return reason
        if op.name == "tt.extern_elementwise" and not op.attributes["symbol"].startswith(LIBDEVICE_PREFIX):
            return f"{op.attributes['symbol']} is no function of libdevice"
        if op.name not in LOWERINGS and op.name not in _STRUCTURE:
            return "the CUDA backend has no lowering for it"
        if (op.name in TTNG.rows or op.name == "ttg.warp_specialize") and Feature.WGMMA not in features_of(target).has:
            return f"kernelpack.language.hopper needs {' or '.join(f'{self.name}:{name}' for name in having(Feature.WGMMA))}"
        for value in (*op.operands, *op.results):
            reason = _unsupported_type(element_of(value.type)) or _unsupported_arithmetic(op, element_of(value.type))
            if reason is not None:
                return reason
        return None

    def tool_versions(self) -> Mapping[str, str]:
        ptxas = find_ptxas()
        if ptxas is not None:
            assembler = ptxas_name(ptxas)
        else:
            assembler = f"nvJitLink {nvjitlink_version()}"
        return {"llvm": llvm_version(), "assembler": assembler}

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


def _check(options: Options, features: Features) -> None:
    # a program of several blocks may as well be computed by one: what it means is the same (docs/decisions.md)
    if options.num_ctas not in (1, 2, 4, 8, 16):
        raise UnsupportedError(f"num_ctas={options.num_ctas} is not a power of two from 1 to 16", cure="use num_ctas=1")
    if options.num_ctas > 1 and Feature.CLUSTERS not in features.has:
        raise UnsupportedError(
            f"num_ctas={options.num_ctas}: {features.name} has no clusters of blocks, which came with sm_90",
            cure="use num_ctas=1",
        )
    threads = options.num_warps * LANES
    if threads > MAX_THREADS:
        raise OutOfResources(
            f"the kernel needs {threads} threads, a block has at most {MAX_THREADS}", cure="use num_warps=4 or 8"
        )
    if options.num_warps not in (1, 2, 4, 8, 16, 32):
        raise UnsupportedError(f"num_warps={options.num_warps} is not a power of two from 1 to 32", cure="use 4 or 8")
    if options.threads_per_warp not in (None, LANES):
        raise UnsupportedError(
            f"threads_per_warp={options.threads_per_warp}: warps of NVIDIA GPUs have {LANES} threads",
            cure="leave threads_per_warp out, and choose num_warps",
        )
    if options.num_stages < 1:
        raise UnsupportedError(
            f"num_stages={options.num_stages} is below 1", cure="use 1 to load nothing ahead, 2 to 4 otherwise"
        )
    if options.maxnreg is not None and not 16 <= options.maxnreg <= 255:
        raise UnsupportedError(f"maxnreg={options.maxnreg} is outside 16 ... 255", cure="leave it out, or choose 64 to 255")


def _unsupported_arithmetic(op: Operation, kind: Type) -> str | None:
    if isinstance(kind, FloatType) and kind.width == 8 and op.name.startswith(("arith.", "math.")) and op.name not in _MOVES:
        return f"{kind} has no arithmetic"
    return None


def _unsupported_type(kind: Type) -> str | None:
    if isinstance(kind, PointerType):
        return _unsupported_type(kind.pointee)
    if isinstance(kind, FloatType) and kind.name.endswith("UZ"):
        return f"type {kind} is not supported in this architecture: it belongs to other GPUs"
    if isinstance(kind, IntegerType) and kind.width not in _INTEGERS:
        return f"integers have 1, 8, 16, 32 or 64 bits, not {kind.width}"
    return None
