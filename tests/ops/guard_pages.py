"""Runs the accuracy grid's cases on tensors that lie against forbidden pages: an access outside of a tensor ends the process.

`python -m tests.ops.guard_pages [OP]` prints each case before it runs, so that the last line names the one that failed.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import kernelpack
from tests.ops.functional import has_out, results_of, written
from tests.ops.grid import Case, cases

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """A tensor of the same values, strides and dtype whose memory ends where a forbidden page begins, or begins where one ends."""

    def __init__(self, x: torch.Tensor, *, at_end: bool) -> None:
        elements = (
            1 + sum((extent - 1) * stride for extent, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
        )
        size = elements * x.element_size()
        pages = -(-size // PAGE)
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        view = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        self.start = ctypes.addressof(view)
        self.pages = pages
        offset = (pages + 1) * PAGE - size if at_end else PAGE
        if size == 0:
            self.tensor = x
            return
        flat = torch.frombuffer(self.memory, dtype=x.dtype, count=elements, offset=offset)
        self.tensor = flat.as_strided(x.shape, x.stride())
        flat.copy_(x.as_strided((elements,), (1,)))
        self._protect(0)

    def _protect(self, mode: int) -> None:
        for page in (0, self.pages + 1):
            if _LIBC.mprotect(ctypes.c_void_p(self.start + page * PAGE), PAGE, mode) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def release(self) -> None:
        """Allows the pages again, so that the memory can be given back."""
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)


def call_guarded(op: Any, arguments: Mapping[str, Any], results: Sequence[str], *, at_end: bool) -> None:
    """Calls an op's overload that writes into given tensors, all of them against forbidden pages; its results are those of a plain call."""
    expected = op(**arguments)
    guarded = {name: Guarded(x, at_end=at_end) for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    written_to = {name: Guarded(torch.zeros_like(x), at_end=at_end) for name, x in zip(results, expected, strict=True)}
    op.out(**{**arguments, **{name: held.tensor for name, held in {**guarded, **written_to}.items()}})
    for held, right in zip(written_to.values(), expected, strict=True):
        assert torch.equal(held.tensor, right)
    for held in (*guarded.values(), *written_to.values()):
        held.release()


def run(case: Case, *, at_end: bool) -> None:
    """Calls a case's op, as a function and, if it has results, into an out tensor that lies against forbidden pages as its arguments
    do."""
    args, kwargs = case.arguments()
    op = getattr(torch.ops.kernelpack, case.op)
    guarded = [Guarded(value, at_end=at_end) if isinstance(value, torch.Tensor) else value for value in args]
    named = {
        name: Guarded(value, at_end=at_end) if isinstance(value, torch.Tensor) else value for name, value in kwargs.items()
    }
    expected = results_of(op(*args, **kwargs))
    values = [value.tensor if isinstance(value, Guarded) else value for value in guarded]
    keywords = {name: value.tensor if isinstance(value, Guarded) else value for name, value in named.items()}
    outs = [Guarded(torch.zeros_like(one), at_end=at_end) for one in expected] if has_out(case.op) else []
    if outs:
        op.out(*values, **keywords, out=outs[0].tensor)
        got = tuple(out.tensor for out in outs)
    else:
        got = results_of(op(*values, **keywords))
    pairs = list(zip(got, expected, strict=True))
    pairs += [(values[place], args[place]) for place in written(case.op).values()]
    for one, right in pairs:
        assert torch.equal(_numbers(one), _numbers(right)), str(case)
    for value in (*guarded, *named.values(), *outs):
        if isinstance(value, Guarded):
            value.release()


def _numbers(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor whose numbers can be compared: NaN is equal to NaN, floats of 8 bits are float32."""
    wide = x.float() if x.element_size() == 1 and x.is_floating_point() else x
    return wide.nan_to_num(7.0) if wide.is_floating_point() else wide


if __name__ == "__main__":
    assert kernelpack.__version__
    torch.set_num_threads(1)
    for case in cases():
        if len(sys.argv) == 1 or case.op in sys.argv[1:]:
            for at_end in (True, False):
                print(case, "before a forbidden page" if at_end else "after a forbidden page", flush=True)
                run(case, at_end=at_end)
    print("no access outside of a tensor")
