"""tl.extra.cuda: what only GPUs have: their clock, the number of a multiprocessor, programmatic dependent launch. A kernel launched with `launch_pdl=True` may start while the launch before it on the
stream still runs."""

from __future__ import annotations

from kernelpack.errors import CompilationError
from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.types import int32, int64
from kernelpack.kernel.values import tensor
from kernelpack.language.extra.cuda import libdevice as libdevice
from kernelpack.language.inline_asm import inline_asm_elementwise

__all__ = ["gdc_launch_dependents", "gdc_wait", "globaltimer", "num_threads", "num_warps", "smid"]


@builtin
def globaltimer(*, _generator: Generator) -> tensor:
    """Returns the GPU's clock in nanoseconds, an int64."""
    made: tensor = inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], int64, False, 1, _generator=_generator)
    return made


@builtin
def smid(*, _generator: Generator) -> tensor:
    """Returns the number of the multiprocessor that runs the program, an int32."""
    made: tensor = inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], int32, True, 1, _generator=_generator)
    return made


@builtin
def num_warps(*, _generator: Generator) -> int:
    """Returns the number of warps that the program is launched with, a compile-time value."""
    if _generator.num_warps is None:
        raise CompilationError(
            "the number of warps of an op's kernel is chosen for each target",
            cure="make it a tl.constexpr parameter of the kernel",
        )
    return _generator.num_warps


@builtin
def num_threads(*, _generator: Generator) -> int:
    """Returns the number of threads that the program is launched with, 32 a warp, a compile-time value."""
    warps: int = num_warps(_generator=_generator)
    return 32 * warps


@builtin
def gdc_wait(*, _generator: Generator) -> None:
    """Waits until the launches that this one depends on have ended: what they wrote can be read afterwards.

    Does nothing where a launch begins only when the one before has ended: before sm_90, on CPUs, without `launch_pdl`.
    """
    _generator.builder.create("gpu.gdc_wait")


@builtin
def gdc_launch_dependents(*, _generator: Generator) -> None:
    """Lets launches that depend on this one begin, once every program has said so or ended. They wait by gdc_wait themselves."""
    _generator.builder.create("gpu.gdc_launch_dependents")
