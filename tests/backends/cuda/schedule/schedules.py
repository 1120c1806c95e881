"""What is decided of a kernel's loops for sm_90a, as text: places in it are what stands on their lines."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from kernelpack.backends.cuda.context import Attempt, CudaContext
from kernelpack.backends.cuda.ttir_to_ttgir import SCHEDULE, TTGIR
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation, entry_function
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.target import Target


@dataclass(frozen=True)
class Scheduled:
    """A kernel's schedule, and its ttgir."""

    text: str
    module: Operation

    def loops(self) -> list[Operation]:
        return [op for op in entry_function(self.module).walk() if op.name == "scf.for"]

    def names(self, block: Operation, *wanted: str) -> list[str]:
        """The operations of a loop's body that belong to products, copies, waits and barriers, or have one of the names given."""
        known = ("ttng.", "ttg.async", "gpu.barrier", *wanted)
        return [op.name for op in block.body.operations if op.name.startswith(known)]


def ttir(kernel: JITFunction, **types: str | int | bool) -> Operation:
    """Returns a kernel's ttir. Parameters are pointers to bfloat16, or of the type that a text names; all are multiples of 16."""
    constants = {name: value for name, value in types.items() if not isinstance(value, str)}
    signature = {name: str(types.get(name, "*bf16")) for name in kernel.arg_names if name not in constants}
    facts = tuple(Fact(name, "tt.divisibility", 16) for name in signature)
    return optimise_ttir(ast_to_ttir(kernel, signature, constants, facts))


def scheduled(
    kernel: JITFunction, warps: int = 4, stages: int = 3, target: str = "cuda:sm_90a", **types: str | int | bool
) -> Scheduled:
    """Returns what is decided of a kernel's loops, and the kernel that follows from it."""
    context = CudaContext(Target.parse(target), Options(num_warps=warps, num_stages=stages), kernel.__name__, Attempt(stages))
    module = TTGIR(ttir(kernel, **types), context)
    return Scheduled(_named(context.notes[SCHEDULE], kernel), module)


class _Seen:
    """A hook that keeps the module that a pass is given."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self.module: Operation | None = None

    def before(self, name: str, operation: Operation) -> None:
        if name == self.wanted:
            self.module = next(operation.ancestors()).clone()

    def after(self, name: str, operation: Operation, seconds: float) -> None:
        pass


def given_to(name: str, kernel: JITFunction, warps: int = 4, stages: int = 3, **types: str | int | bool) -> Operation:
    """Returns the function that a pass of the pipeline is given, as the passes before it made it."""
    seen = _Seen(name)
    context = CudaContext(
        Target.parse("cuda:sm_90a"), Options(num_warps=warps, num_stages=stages), kernel.__name__, hooks=(seen,)
    )
    TTGIR(ttir(kernel, **types), context)
    assert seen.module is not None
    return entry_function(seen.module)


def _named(text: str, kernel: JITFunction) -> str:
    """Writes in place of a line and column what the line assigns to, or its first word."""
    lines = inspect.getsource(inspect.getmodule(kernel.fn) or inspect).splitlines()

    def name(place: re.Match[str]) -> str:
        line = lines[int(place[1]) - 1].strip()
        return line.partition(" = ")[0] if " = " in line else line.split()[0]

    return re.sub(r"(\d+):\d+", name, text)
