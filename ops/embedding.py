"""embedding: the rows of a table that indices name, with the meaning of torch.nn.functional.embedding."""

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.knobs import DEBUG

from ._roles import begin_early, early
from ._rows import DTYPES, ELEMENTS_PER_PROGRAM, check_contiguous, check_whole

RANGES = {"dtypes": ("float32", "float16", "bfloat16"), "ids": ("int64", "int32"), "columns": (0, 2**31 - 1)}


@kp.jit(debug=True)
def check_id(index, rows):
    tl.device_assert((index >= 0) & (index < rows), "embedding: ids: one lies outside of the rows of weight")


@kp.jit
def copy_block(weight, target, index, rows, begin, columns, BLOCK: tl.constexpr, CHECKED: tl.constexpr):
    """Copies a block of a row; of a row that the table has not, NaN, unless that was CHECKED."""
    offsets = begin + tl.arange(0, BLOCK)
    inside = offsets < columns
    if CHECKED:
        value = tl.load(weight + offsets, mask=inside)
    else:
        value = tl.load(weight + offsets, mask=inside & (index >= 0) & (index < rows), other=float("nan"))
    tl.store(target + offsets, value, mask=inside)


@kp.jit
def embedding_kernel(
    ids, weight, out, stride: tl.int64, rows: tl.int64, count: tl.int64, columns, per_program,
    BLOCK: tl.constexpr, WALK: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Copies a program's rows block after block where it has to WALK, else one block of one row."""
    begin_early()
    if WALK:
        first = tl.program_id(0).to(tl.int64) * per_program
        for place in range(first, tl.minimum(first + per_program, count)):
            index = tl.load(ids + place).to(tl.int64)
            if CHECKED:
                check_id(index, rows)
            for begin in range(0, columns, BLOCK):
                copy_block(weight + index * stride, out + place * columns, index, rows, begin, columns, BLOCK, CHECKED)
    else:
        blocks = tl.cdiv(columns, BLOCK)
        place = (tl.program_id(0) // blocks).to(tl.int64)
        index = tl.load(ids + place).to(tl.int64)
        if CHECKED:
            check_id(index, rows)
        begin = tl.program_id(0) % blocks * BLOCK
        copy_block(weight + index * stride, out + place * columns, index, rows, begin, columns, BLOCK, CHECKED)


def config(point):
    if point.target.backend == "cpu":
        return kp.Config({"BLOCK": 64, "WALK": True, "CHECKED": True})
    return kp.Config({"BLOCK": 1024, "WALK": False, "CHECKED": DEBUG.is_on()}, num_warps=4, launch_pdl=early(point))


@kp.op(
    "embedding(Tensor ids, Tensor weight) -> Tensor",
    variants={"ids": [tl.int64, tl.int32], "weight": DTYPES},
    configs={"": config},
    specialize=[kp.aligned("weight")],
)
def embedding(ids, weight):
    """Returns the rows of `weight` [rows, columns] that `ids` [...] name, [..., columns], in weight's dtype.

    `ids` is contiguous, int64 or int32. An id outside of the rows is an error on CPUs. On GPUs it is checked in kernels that were
    compiled with KERNELPACK_DEBUG=1; else it gives NaN.
    """
    kp.check(weight.dim() == 2, f"weight must have 2 dimensions, it has shape {weight.shape}")
    check_contiguous(weight, "weight")
    check_whole(ids, "ids")
    rows, columns = weight.shape
    out = kp.empty((*ids.shape, columns), weight.dtype, weight.device)
    count = ids.numel()
    per_program = 1 if ids.is_cuda else max(1, ELEMENTS_PER_PROGRAM // max(columns, 1))
    embedding_kernel[lambda meta: (count * kp.cdiv(columns, meta["BLOCK"]) if ids.is_cuda else kp.cdiv(count, per_program),)](
        ids, weight, out, weight.stride(0), rows, count, columns, per_program
    )
    return out


def reference(ids, weight):
    """The same with torch, in any float dtype."""
    import torch  # builds do without it

    return torch.nn.functional.embedding(ids, weight)
