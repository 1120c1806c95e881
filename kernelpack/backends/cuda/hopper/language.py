"""What kernels for sm_90a may say themselves: shared memory, barriers, asynchronous copies and products, roles of warps.

`from kernelpack.language import hopper` inside ordinary @jit kernels. Tiles in registers keep automatic layouts; buffers in
shared memory, who waits for whom, and which warps do what are the author's. The names of hardware are those of the PTX ISA.

A buffer is a tile [rows, columns] in shared memory, or with `stages` a ring of such tiles, `ring[stage]`; `tile.T` is its
transposed view, `tile.nbytes` its size. A barrier completes a phase when its arrivals have come and the bytes it expects have
landed; phases are numbered by parity, a wait for parity 1 of a fresh barrier returns at once.

    full = hopper.mbarrier_alloc(1, stages=STAGES)          # the producer's announcement
    empty = hopper.mbarrier_alloc(2, stages=STAGES)         # one arrival of each consumer
    tiles = hopper.local_alloc([64, 64], tl.bfloat16, stages=STAGES)
    hopper.warp_specialize(
        hopper.role(produce, (descriptor, tiles, full, empty), num_warps=1, registers=40),
        hopper.role(consume, (out, tiles, full, empty), num_warps=4, registers=232, copies=2),
    )
"""

from __future__ import annotations

from typing import Any

from kernelpack.backends.cuda.hopper import buffers
from kernelpack.backends.cuda.machine.dialect import NAMED_BARRIERS
from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.types import int32
from kernelpack.kernel.values import tensor
from kernelpack.language.inline_asm import inline_asm_elementwise

__all__ = [
    "async_dot",
    "async_load",
    "async_store",
    "async_store_wait",
    "fence_async_shared",
    "local_alloc",
    "local_load",
    "local_store",
    "mbarrier_alloc",
    "mbarrier_arrive",
    "mbarrier_expect",
    "mbarrier_wait",
    "named_barrier_arrive",
    "named_barrier_wait",
    "prefetch",
    "role",
    "wait_dots",
    "warp_specialize",
]


# ---- shared memory ----


@builtin
def local_alloc(shape: Any, dtype: Any, stages: Any = None, *, _generator: Generator) -> tensor:
    """Returns an uninitialised buffer: a tile of `shape` [rows, columns], or a ring of `stages` tiles."""
    return buffers.alloc(_generator.builder, shape, dtype, stages)


@builtin
def local_load(buffer: tensor, *, _generator: Generator) -> tensor:
    """Returns a tile of shared memory in registers."""
    return buffers.load(_generator.builder, buffer)


@builtin
def local_store(buffer: tensor, value: Any, *, _generator: Generator) -> None:
    """Writes a tile, converted to the buffer's type, to shared memory."""
    buffers.store(_generator.builder, buffer, value)


@builtin
def fence_async_shared(*, _generator: Generator) -> None:
    """Lets asynchronous copies and products after it see what the calling threads wrote to shared memory before."""
    _generator.builder.create("ttng.fence_async_shared")


# ---- barriers ----


@builtin
def mbarrier_alloc(count: int, stages: Any = None, *, _generator: Generator) -> tensor:
    """Returns a barrier that `count` arrivals complete, or a ring of `stages` such barriers. Roles begin after it."""
    return buffers.barriers(_generator.builder, count, stages)


@builtin
def mbarrier_expect(barrier: tensor, size: int, *, _generator: Generator) -> None:
    """Arrives once, and announces that `size` bytes of asynchronous loads will land in this phase."""
    buffers.expect(_generator.builder, barrier, size)


@builtin
def mbarrier_wait(barrier: tensor, phase: Any, *, _generator: Generator) -> None:
    """Waits until the phase of this parity (0 or 1) is complete."""
    buffers.wait(_generator.builder, barrier, phase)


@builtin
def mbarrier_arrive(barrier: tensor, each_warp: bool = False, *, _generator: Generator) -> None:
    """Arrives once for all warps of the role (or its copy): one of its threads does. Products that read what the barrier
    guards must have been waited for.

    each_warp: every warp arrives, after what its lanes read and wrote. Without it, a tile that several warps read or write by
    local_load and local_store needs a named barrier before.
    """
    buffers.arrive(_generator.builder, barrier, each_warp)


@builtin
def named_barrier_wait(number: Any, threads: int, *, _generator: Generator) -> None:
    """Waits at barrier `number` (0 to 7) until `threads` threads have come, those that only arrive included."""
    buffers.named(_generator.builder, "ttng.wait_barrier_named", number, threads, NAMED_BARRIERS)


@builtin
def named_barrier_arrive(number: Any, threads: int, *, _generator: Generator) -> None:
    """Counts the calling threads at barrier `number` (0 to 7) without waiting."""
    buffers.named(_generator.builder, "ttng.arrive_barrier_named", number, threads, NAMED_BARRIERS)


# ---- copies ----


@builtin
def async_load(desc: Any, offsets: Any, buffer: tensor, barrier: tensor, row: Any = 0, *, _generator: Generator) -> None:
    """Starts copying the block at `offsets` of a tensor to a tile; one thread does. Its bytes land in the barrier's phase.

    A block of fewer rows than the tile lands at the rows from `row` on, a compile-time number; both are multiples of 8.
    """
    buffers.copy_in(_generator.builder, desc, offsets, buffer, barrier, row)


@builtin
def async_store(desc: Any, offsets: Any, buffer: tensor, row: Any = 0, *, _generator: Generator) -> None:
    """Starts copying a tile to the block at `offsets` of a tensor; one thread does. What was stored to the tile needs
    `fence_async_shared` before. A block of fewer rows than the tile gets those from `row` on, as in async_load."""
    buffers.copy_out(_generator.builder, desc, offsets, buffer, row)


@builtin
def async_store_wait(pending: int, *, _generator: Generator) -> None:
    """Waits until at most `pending` of the stores that the role began still read shared memory."""
    buffers.store_wait(_generator.builder, pending)


# ---- products ----


@builtin
def async_dot(a: tensor, b: tensor, acc: tensor, *, _generator: Generator) -> tensor:
    """Starts acc + a b and returns the sum, which may be read after `wait_dots`.

    a [M, K] in shared memory or registers, b [K, N] in shared memory, both float16 or both bfloat16, or 8-bit floats, which lie
    along K in shared memory; acc [M, N] float32, M a multiple of 64 rows for each four warps. A constant zero as acc costs nothing.
    """
    return buffers.dot(_generator.builder, a, b, acc)


@builtin
def wait_dots(pending: int, *accs: tensor, _generator: Generator) -> Any:
    """Waits until at most `pending` of the products begun are under way; returns the given sums, which may be read then."""
    return buffers.wait_dots(_generator.builder, pending, accs)


# ---- global memory ----


@builtin
def prefetch(pointers: Any, *, _generator: Generator) -> None:
    """Asks for the lines of 128 bytes that a tile of pointers leads to, so that they are in the L2 cache when somebody loads them.

    Nobody waits for it. The pointers must lead to memory that exists.
    """
    assembly = "prefetch.global.L2 [$1]; mov.u32 $0, 0;"
    inline_asm_elementwise(assembly, "=r,l", [pointers], dtype=int32, is_pure=False, pack=1, _generator=_generator)


# ---- roles ----


@builtin
def role(
    function: Any, args: Any, num_warps: int = 4, registers: Any = None, copies: int = 1, *, _generator: Generator
) -> buffers.Role:
    """Returns what some warps do: `function(copy, *args)`, a @jit function that returns nothing.

    `copies` groups of `num_warps` warps run it; `copy` counts them. `registers` is what each of its threads has (a multiple of
    8 from 24 to 256): together, roles rounded up to four warps, they must fit 65536.
    """
    return buffers.role(function, args, num_warps, registers, copies)


@builtin
def warp_specialize(*roles: Any, _generator: Generator) -> None:
    """Runs roles at the same time; it is the last statement of a kernel, which then has the warps of its roles.

    Tiles in registers cannot pass from outside into roles: scalars, descriptors, buffers and barriers can.
    """
    buffers.specialize(_generator, roles)
