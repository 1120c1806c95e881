"""How the CUDA backend compiles: its stages after ttir, what becomes of accesses through descriptors, and what it refuses."""

from __future__ import annotations

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.base import Stage
from kernelpack.backends.cuda.assemble.llir_to_ptx import llir_to_ptx, llir_to_ptx_image
from kernelpack.backends.cuda.assemble.ptx_to_cubin import ptx_to_cubin, while_ptxas_starts
from kernelpack.backends.cuda.context import Attempt as Attempt
from kernelpack.backends.cuda.context import CudaContext as CudaContext
from kernelpack.backends.cuda.lowering import LOWERINGS
from kernelpack.backends.cuda.lowering.calls import why_inlined
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.machine.dialect import TTNG
from kernelpack.backends.cuda.machine.features import LANES, MAX_THREADS, PTX_FEATURE, Feature, Features, features_of, having
from kernelpack.backends.cuda.machine.tensor_map import (
    ALIGNMENT,
    TensorMap,
    begins_known,
    ends_known,
    kernel_makes,
    tensor_map_of,
)
from kernelpack.backends.cuda.ttir_to_ttgir import TTGIR
from kernelpack.backends.gpu.lowering.control_flow import STRUCTURE
from kernelpack.compiled import DESCRIPTOR, POINTERS, DescriptorForm
from kernelpack.errors import OutOfResources, UnsupportedError
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import operand
from kernelpack.ir.dialects.descriptors import ACCESSES
from kernelpack.ir.libdevice import LIBDEVICE_PREFIX
from kernelpack.ir.types import FloatType, IntegerType, PointerType, Type, bit_width, element_of, shape_of
from kernelpack.options import Options
from kernelpack.target import Target

_INTEGERS = (1, 8, 16, 32, 64)
_MOVES = frozenset({"arith.constant", "arith.select", "arith.bitcast", "math.absf"})
"""What arith and math do to bits as they are."""
_STRUCTURE = STRUCTURE | {"ttg.role", "ttg.warp_return"}
_LEAST_DEPTH = {8: 32, 64: 4}
"""The least K of a product by the width of its operands, where it is not 16: as in Triton."""


def stages(target: Target, options: Options) -> dict[str, Stage]:
    """Returns the stages after ttir for a target. Raises an error for options that it cannot have."""
    _check(options, features_of(target))
    first: dict[str, Stage] = {"ttgir": TTGIR, "llir": ttgir_to_llir}
    if PTX_FEATURE in target.features:
        return {**first, "ptx": llir_to_ptx_image}
    return {**first, "ptx": while_ptxas_starts(llir_to_ptx), "cubin": ptx_to_cubin}


def descriptor_form(access: Operation, facts: AxisInfoAnalysis, target: Target) -> DescriptorForm:
    """Returns what becomes of an access through a descriptor: see Backend.descriptor_form."""
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


def supports(op: Operation, target: Target) -> str | None:
    """Returns why an operation cannot be lowered, or None."""
    if (op.name in ACCESSES or op.name == "tt.make_tensor_descriptor") and Feature.TMA in features_of(target).has:
        return None
    if op.name == "tt.call" and (reason := why_inlined(op)) is not None:
        return reason
    if op.name == "tt.extern_elementwise" and not op.attributes["symbol"].startswith(LIBDEVICE_PREFIX):
        return f"{op.attributes['symbol']} is no function of libdevice"
    if op.name not in LOWERINGS and op.name not in _STRUCTURE:
        return "the CUDA backend has no lowering for it"
    if (op.name in TTNG.rows or op.name == "ttg.warp_specialize") and Feature.WGMMA not in features_of(target).has:
        return f"kernelpack.language.hopper needs {' or '.join(f'cuda:{name}' for name in having(Feature.WGMMA))}"
    if op.name == "tt.dot" and op.operands and (reason := _too_shallow(op)) is not None:
        return reason
    for value in (*op.operands, *op.results):
        reason = _unsupported_type(element_of(value.type)) or _unsupported_arithmetic(op, element_of(value.type))
        if reason is not None:
            return reason
    return None


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


def _too_shallow(op: Operation) -> str | None:
    a = operand(op, "a").type
    element, depth = element_of(a), shape_of(a)[-1]
    least = _LEAST_DEPTH.get(bit_width(element), 16)
    if depth >= least:
        return None
    return (
        f"Input shapes should have M >= 1, N >= 1 and K >= {least}: tl.dot of {element} has K = {depth}; "
        "to fix: pad K with zeros, or write tl.sum(x[:, :, None] * y[None, :, :], axis=1)"
    )


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
