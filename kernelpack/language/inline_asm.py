"""PTX inside kernels: `tl.inline_asm_elementwise`. Kernels that use it run on CUDA only; elsewhere the error says what does the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.kernel.builtin import Generator, builtin
from kernelpack.kernel.types import block_type, describe
from kernelpack.kernel.types import dtype as _dtype
from kernelpack.kernel.values import tensor
from kernelpack.semantics import operators

__all__ = ["inline_asm_elementwise"]


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Sequence[Any], dtype: Any, is_pure: bool, pack: int, *, _generator: Generator
) -> Any:
    """Applies PTX to tiles of one shape, `pack` elements of each at a time; elements below 32 bits share registers as far as they fit.

    `constraints` are those of LLVM ("=r,r,r": results, then operands), `$0` ... the registers in that order. Returns a tile of
    `dtype`, or a tuple of tiles where that is a tuple. `is_pure` says that the code only computes its results. Scalars are broadcast.
    """
    for name, value in (("asm", asm), ("constraints", constraints)):
        if not isinstance(value, str):
            raise CompilationError(f"{name} of inline_asm_elementwise is a compile-time string, got {describe(value)}")
    kinds = tuple(dtype) if isinstance(dtype, (tuple, list)) else (dtype,)
    if not kinds or not all(isinstance(kind, _dtype) for kind in kinds):
        raise CompilationError(f"inline_asm_elementwise needs a dtype, or several, for its results, got {describe(dtype)}")
    if isinstance(pack, bool) or not isinstance(pack, int) or pack < 1:
        raise CompilationError(f"pack is how many elements are processed at a time, at least 1, got {describe(pack)}")
    b = _generator.builder
    values = [operators.to_tensor(b, value) for value in args]
    values = list(operators.broadcast(b, *values)) if values else []
    shape = values[0].shape if values else ()
    results = [block_type(kind, shape) if shape else kind for kind in kinds]
    attributes = {"asm_string": asm, "constraints": constraints, "pure": bool(is_pure), "packed_element": pack}
    handles = [value.handle for value in values]
    op = b.create("tt.elementwise_inline_asm", handles, attributes, [kind.to_ir() for kind in results])
    made = tuple(tensor(handle, kind) for handle, kind in zip(op.results, results, strict=True))
    return made if isinstance(dtype, (tuple, list)) else made[0]
