"""What travels through the stages of a compilation beside the IR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelpack.compiled import Parameter
from kernelpack.facts import Fact
from kernelpack.ir.core import Operation
from kernelpack.options import Options
from kernelpack.target import Target


class Hook(Protocol):
    """Sees each pass of a pipeline: `before` it runs over an operation, and `after`, with the seconds that it took."""

    def before(self, name: str, operation: Operation) -> None: ...

    def after(self, name: str, operation: Operation, seconds: float) -> None: ...


@dataclass
class Context:
    """What is compiled, for what, and what the launcher must know, which stages fill in on the way.

    A backend whose stages hand on more to each other has a subclass.
    """

    target: Target
    options: Options
    entry: str
    attempt: Any = None
    """One of the backend's `attempts`; None for its first."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What CompiledKernel.metadata will be: resources, and what else the launcher must know."""
    sources: dict[str, str] = field(default_factory=dict)
    """The files that line information names, by these names, for errors of tools that see nothing else."""
    descriptors: tuple[str, ...] = ()
    """Those of tensors that the launcher makes at each launch and passes after the parameters (kernelpack/descriptors.py)."""
    added: list[Parameter] = field(default_factory=list)
    """Parameters that a stage gave the kernel after its own."""
    unused: set[Fact] = field(default_factory=set)
    """Facts that a stage looked at and made nothing of. The others travel with the kernel and guard it."""
    notes: dict[str, str] = field(default_factory=dict)
    """Texts that stages write beside their values, for people who inspect them."""
    hooks: Sequence[Hook] = ()
