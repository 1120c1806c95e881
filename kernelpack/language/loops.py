"""What loops of kernels run over: ranges and conditions with attributes, and ranges that are unrolled."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from kernelpack.errors import CompilationError
from kernelpack.kernel.types import describe


class range:
    """The range of a `for` loop, with attributes: num_stages, loop_unroll_factor, flatten, warp_specialize ..."""

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: int | None = None,
        loop_unroll_factor: int | None = None,
        disallow_acc_multi_buffer: bool = False,
        flatten: bool = False,
        warp_specialize: bool = False,
        disable_licm: bool = False,
    ) -> None:
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step: Any = 1 if step is None else step
        self.attributes: dict[str, int | bool] = {}
        for name, number in (("num_stages", num_stages), ("loop_unroll_factor", loop_unroll_factor)):
            if number is not None:
                if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                    raise CompilationError(f"{name} must be a compile-time integer from 0 on, is {describe(number)}")
                self.attributes[f"tt.{name}"] = number
        for name, flag in (
            ("disallow_acc_multi_buffer", disallow_acc_multi_buffer),
            ("flatten", flatten),
            ("warp_specialize", warp_specialize),
            ("disable_licm", disable_licm),
        ):
            if flag:
                self.attributes[f"tt.{name}"] = True

    def __iter__(self) -> Iterator[int]:
        raise CompilationError("tl.range exists inside kernels only", cure="use Python's range")


class condition:
    """The condition of a `while` loop, with an attribute: `while tl.condition(i < n, disable_licm=True)`."""

    def __init__(self, cond: Any, disable_licm: bool = False) -> None:
        self.cond = cond
        self.disable_licm = bool(disable_licm)


class static_range:
    """A compile-time range: its `for` loop is unrolled, and the variable is a compile-time integer."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step: Any = 1 if step is None else step
        for value in (self.start, self.end, self.step):
            if isinstance(value, bool) or not isinstance(value, int):
                raise CompilationError(
                    f"tl.static_range takes compile-time integers, got {describe(value)}", cure="use range or tl.range"
                )
        if self.step == 0:
            raise CompilationError("the step of tl.static_range is 0")

    @property
    def trips(self) -> int:
        """How many numbers it has: more than len() could tell."""
        missed: int = (self.start - self.end) // self.step
        return max(0, -missed)

    def __iter__(self) -> Iterator[int]:
        return iter(builtins.range(self.start, self.end, self.step))
