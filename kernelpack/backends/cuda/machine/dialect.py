"""ttng: what sm_90a adds to ttgir: mbarriers, products of warpgroups, TMA, proxy fences."""

from __future__ import annotations

from kernelpack.backends.cuda.machine.block_copies import transfer_into, transfer_of
from kernelpack.backends.gpu.dialect import TTG as TTG  # what it adds to is known wherever it is
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import Dialect, Effect, Trait, attr, operand, operands_called, row, same_as
from kernelpack.ir.dialects.tt import multiplies_together
from kernelpack.ir.types import I32, I64, MemDescType, TensorDescType, TensorType, Type, element_of, shape_of

PRODUCT, WAIT = "ttng.warp_group_dot", "ttng.warp_group_dot_wait"
"""A product of warpgroups, and what waits for such products."""
DOTS = ("tt.dot", "ttg.fma_dot", PRODUCT)
"""All operations that multiply matrices."""
NAMED_BARRIERS = 8
"""How many of the 16 barriers of a block (PTX ISA, barrier.cta) kernels may name; roles wait at the others."""


def is_mbarrier(kind: Type) -> bool:
    """Whether a type is one mbarrier: a buffer of a single i64."""
    return isinstance(kind, MemDescType) and kind.shape == (1,) and kind.element == I64


def _check_mbarrier_operand(kind: Type) -> str | None:
    return None if is_mbarrier(kind) else f"the barrier must be one i64 of shared memory, is {kind}"


def _check_mbarrier(op: Operation) -> str | None:
    return _check_mbarrier_operand(op.operands[0].type)


def _check_named(op: Operation) -> str | None:
    threads = op.attributes["threads"]
    return None if 32 <= threads <= 1024 and threads % 32 == 0 else f"{threads} threads are no whole number of warps"


def _check_warp_group_dot(op: Operation) -> str | None:
    a, b, c = (value.type for value in op.operands)
    if not isinstance(a, (TensorType, MemDescType)):
        return f"operand a must be a tile in registers or in shared memory, is {a}"
    (m, k), (k_of_b, n) = shape_of(a)[-2:], shape_of(b)[-2:]
    fits = k == k_of_b and shape_of(c) == (m, n) and multiplies_together(element_of(a), element_of(b))
    return None if fits else f"tiles do not fit: {a} * {b} -> {c}"


def _check_tma(op: Operation) -> str | None:
    desc = op.operands[0].type
    tile = operand(op, "src" if "local_to" in op.name else "dst").type
    assert isinstance(desc, TensorDescType)
    block = desc.block
    if any(value.type != I32 for value in operands_called(op, "coords")) or len(operands_called(op, "coords")) != block.rank:
        return f"takes {block.rank} coordinates of type i32"
    if transfer_of(block) is None:
        return f"TMA cannot copy a block of {block}"
    assert isinstance(tile, MemDescType)
    row = op.attributes.get("row", 0)
    transfer = transfer_into(block, tile.shape, row)
    if transfer is None:
        return f"a block of {block} is not rows from {row} on of {tile}"
    expected = MemDescType(tile.shape, block.element, transfer.encoding, True)
    if tile != expected:
        return f"the buffer of {desc} is {expected}, not {tile}"
    return _check_mbarrier_operand(operand(op, "barrier").type) if op.name.endswith("to_local") else None


TTNG = Dialect(
    "ttng",
    [
        # ---- mbarriers: !ttg.memdesc<1xi64, ..., mutable>; arrivals count down, at 0 the phase flips ----
        row(
            "ttng.init_barrier",
            "alloc: memdesc",
            results=0,
            attributes=[attr("count", "i32")],
            effects=[Effect.SYNCHRONISE],
            format="$alloc , $count attr-dict : type($alloc)",
            check=_check_mbarrier,
        ),
        # one arrival, where `pred` holds, that also announces `size` bytes of asynchronous copies
        row(
            "ttng.barrier_expect",
            "alloc: memdesc, pred?: bool",
            results=0,
            attributes=[attr("size", "i32")],
            effects=[Effect.SYNCHRONISE],
            format="$alloc , $size (, $pred)? attr-dict : type($alloc)",
            check=_check_mbarrier,
        ),
        # waits until the phase of this parity is complete
        row(
            "ttng.wait_barrier",
            "alloc: memdesc, phase: int_scalar",
            results=0,
            effects=[Effect.SYNCHRONISE],
            format="$alloc , $phase attr-dict : type($alloc)",
            check=lambda op: _check_mbarrier(op) or (None if op.operands[1].type == I32 else "the phase must be i32"),
        ),
        # one arrival of the calling group of warps; with `every`, of each so many of them
        row(
            "ttng.arrive_barrier",
            "alloc: memdesc",
            results=0,
            attributes=[attr("every", "i32", default=0)],
            effects=[Effect.SYNCHRONISE],
            format="$alloc attr-dict : type($alloc)",
            check=_check_mbarrier,
        ),
        # ---- named barriers: between groups of warps that both call them ----
        row(
            "ttng.wait_barrier_named",
            "barrier: int_scalar",
            results=0,
            attributes=[attr("threads", "i32")],
            effects=[Effect.SYNCHRONISE],
            format="$barrier , $threads attr-dict",
            check=_check_named,
        ),
        row(
            "ttng.arrive_barrier_named",
            "barrier: int_scalar",
            results=0,
            attributes=[attr("threads", "i32")],
            effects=[Effect.SYNCHRONISE],
            format="$barrier , $threads attr-dict",
            check=_check_named,
        ),
        # ---- products of warpgroups ----
        # D = A B + C on the tensor cores: A in shared memory or in registers, B in shared memory, C and D in registers. With
        # isAsync, D may be read, and the buffers written, only after a warp_group_dot_wait. `part` is the range of the summed
        # dimension that is multiplied, all of it unless it is given
        row(
            PRODUCT,
            "a: any, b: memdesc, c: tensor",
            attributes=[
                attr("part", "ints", default=None),
                attr("isAsync", "bool", default=False),
                attr("inputPrecision", ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"), default="tf32"),
            ],
            traits=[Trait.PRODUCT],
            effects=[Effect.READ_SHARED, Effect.OTHER],
            format="$a, $b, $c attr-dict : type($a) * type($b) -> type($result)",
            infer=same_as(2),
            check=_check_warp_group_dot,
        ),
        # waits until at most `pendings` of the products issued before are in flight; gives those among `inputs` that are done
        row(
            WAIT,
            "inputs*: tensor",
            results=None,
            attributes=[attr("pendings", "i32")],
            traits=[Trait.PASSES_ON],
            effects=[Effect.READ_SHARED, Effect.OTHER],
            format="attr-dict (of $inputs : type($inputs))?",
            infer=lambda operands, attributes: [operand.type for operand in operands],
        ),
        # ---- TMA: a block of a tensor in global memory and a tile of shared memory; one thread starts the copy ----
        # a block has the rows from `row` on of the tile. Elements outside of the tensor become zero; the bytes of the whole block
        # arrive at the barrier
        row(
            "ttng.async_tma_copy_global_to_local",
            "desc: tensordesc, coords*: int_scalar, barrier: memdesc, dst: memdesc, pred: bool",
            results=0,
            attributes=[attr("row", "i32", default=0)],
            effects=[Effect.READ_GLOBAL, Effect.WRITE_SHARED],
            format="$desc [ $coords ] $dst , $barrier , $pred attr-dict : type($desc), type($barrier) -> type($dst)",
            check=_check_tma,
        ),
        # elements outside of the tensor are not written
        row(
            "ttng.async_tma_copy_local_to_global",
            "desc: tensordesc, coords*: int_scalar, src: memdesc",
            results=0,
            attributes=[attr("row", "i32", default=0)],
            effects=[Effect.READ_SHARED, Effect.WRITE_GLOBAL],
            format="$desc [ $coords ] $src attr-dict : type($desc), type($src)",
            check=_check_tma,
        ),
        # waits until at most `pendings` of the stores that the thread started may still read shared memory
        row(
            "ttng.async_tma_store_wait",
            results=0,
            attributes=[attr("pendings", "i32")],
            effects=[Effect.SYNCHRONISE],
            format="$pendings attr-dict",
        ),
        # ---- steps of a loop that warpgroups take at their own pace: `turn` is the step's number modulo two ----
        # announces that the calling warpgroup has done all that the others need of it for the step
        row("ttng.arrive_turn", "turn: int_scalar", results=0, effects=[Effect.SYNCHRONISE], format="$turn attr-dict"),
        # waits until every warpgroup has announced the step, and the calling one's threads are here
        row("ttng.wait_turn", "turn: int_scalar", results=0, effects=[Effect.SYNCHRONISE], format="$turn attr-dict"),
        # what threads wrote to shared memory before is seen by TMA and wgmma after it
        row("ttng.fence_async_shared", results=0, effects=[Effect.SYNCHRONISE], format="attr-dict"),
        # what threads did to mbarriers is seen by TMA and the other threads after a barrier
        row("ttng.fence_mbarrier_init", results=0, effects=[Effect.SYNCHRONISE], format="attr-dict"),
        # ends a barrier's life: its bytes may become another one
        row(
            "ttng.inval_barrier",
            "alloc: memdesc",
            results=0,
            effects=[Effect.SYNCHRONISE],
            format="$alloc attr-dict : type($alloc)",
            check=_check_mbarrier,
        ),
    ],
)
