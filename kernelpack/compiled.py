"""What compiling gives, and what is said of the parameters of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelpack.facts import Fact
from kernelpack.options import Options
from kernelpack.target import Target


@dataclass(frozen=True)
class Parameter:
    """A run-time parameter of a compiled kernel, in order: the Python name and the ttir type as text (`!tt.ptr<f32>`, `i32`)."""

    name: str
    type: str


BOUNDS = ("begin", "end")
"""What checked kernels are told of the storage of the tensor that a parameter `x` points into: as parameters `x.begin` and `x.end`, two
addresses."""


@dataclass(frozen=True)
class DescriptorForm:
    """What becomes of an access through a descriptor: a masked access through pointers, or, if it is `kept`, the backend lowers it.

    With `row_bytes`, it is kept where rows end at multiples of so many bytes, which the kernel asks.
    """

    kept: bool
    row_bytes: int | None = None


POINTERS, DESCRIPTOR = DescriptorForm(False), DescriptorForm(True)


LINKED = "linked"
"""The kind of an image that names a shared object and a symbol in it, `path:symbol`: code that was linked ahead of time."""


@dataclass(frozen=True)
class CompiledKernel:
    """An image with everything a pack header and a launcher need.

    `stages` holds every stage's value by name (`ttir`, then the backend's); `metadata` holds the backend's resource
    figures (`shared`, `num_warps`, `registers`, `spills`, ...). `code_sha256` is that of the last stage that is text, whatever
    the entry is called: kernels with equal code do the same. `descriptors` are those of tensors that the launcher makes of the
    parameters at each launch and passes after them (kernelpack/descriptors.py).
    """

    entry: str
    target: Target
    options: Options
    parameters: tuple[Parameter, ...]
    facts: tuple[Fact, ...]
    image_kind: str
    image: bytes
    metadata: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, Any] = field(default_factory=dict)
    code_sha256: str = ""
    descriptors: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Returns what other processes get: IR as text."""
        stages = {name: value if isinstance(value, bytes) else str(value) for name, value in self.stages.items()}
        return {**vars(self), "stages": stages}
