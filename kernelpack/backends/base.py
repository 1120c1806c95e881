"""The contract between kernelpack and a backend. Everything a backend is asked for stands on this page."""

from __future__ import annotations

import abc
import enum
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.errors import TargetError
from kernelpack.ir.core import Operation
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.analysis.axis_info import AxisInfoAnalysis
    from kernelpack.compiler import CompiledKernel


@dataclass(frozen=True)
class Options:
    """How a kernel is compiled. The same fields for every backend, so that one Config fits several targets.

    A backend refuses by name what it cannot honour and ignores what has no meaning for it. `threads_per_warp` is the target's
    own; it can be stated, not chosen. With `launch_pdl` (programmatic dependent launch) a kernel may start before the launch
    ahead of it has ended, and waits for what that leaves by tl.extra.cuda.gdc_wait. With `launch_cooperative_grid` all programs
    run at once, so that they may wait for each other; a grid that the GPU cannot hold is refused. With `enable_reflect_ftz` results
    of tl.exp and tl.exp2 below 2^-126 may be 0. `debug` compiles assertions, and with `sanitize_overflow` (which means nothing
    without) some that integers do not overflow.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    enable_fp_fusion: bool = True
    enable_reflect_ftz: bool = True
    debug: bool = False
    sanitize_overflow: bool = True
    threads_per_warp: int | None = None
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False


OPTION_NAMES = tuple(field.name for field in fields(Options))


@dataclass(frozen=True, order=True)
class Fact:
    """Something that compiled code assumes of an argument: `property` is one of the backend's, e.g. tt.divisibility."""

    parameter: str
    property: str
    value: int

    def __str__(self) -> str:
        return f"{self.parameter}:{self.property}={self.value}"


@dataclass(frozen=True)
class Parameter:
    """A run-time parameter of a compiled kernel, in order: the Python name and the ttir type as text (`!tt.ptr<f32>`, `i32`)."""

    name: str
    type: str


@dataclass
class Lowered:
    """What travels through a backend's stages beside the IR: what the launcher must know, filled in on the way."""

    target: Target
    options: Options
    entry: str
    metadata: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """The files that line information names, by these names, for errors of tools that see nothing else."""
    unused: set[Fact] = field(default_factory=set)
    """Facts that a stage looked at and made nothing of. The others travel with the kernel and guard it."""
    runs_ahead: bool = False
    """Whether a stage lets work run on that it might wait for at once."""
    cautious: bool = False
    """Stages do wait at once: an assembler did not follow them."""
    assembler: Any = None
    """What a stage has started for the one behind it, which ends it."""


CSRC = next(
    (folder for folder in (Path(__file__).parents[1] / "csrc", Path(__file__).parents[2] / "csrc") if folder.is_dir()),
    Path(__file__).parents[2] / "csrc",
)
"""The C++ runtime: inside the package when installed, beside it in a checkout."""

Stage = Callable[[Any, Lowered], Any]
"""Takes the value of the stage before (ttir first) and returns its own; `str()` of it, or the bytes, is what inspect shows."""


@dataclass(frozen=True)
class Test:
    """How a property is decided of a run-time argument: in Python, and by a C++ condition in which `{arg}` and `{value}` stand for
    what is compared. The number is an integer's value or a pointer's address; with `of_reach`, how many bytes lie from a
    pointer to the end of its tensor. `implies(value, other)` says whether the test for `other` holds wherever that for `value` does."""

    guard: str
    holds: Callable[[int, int], bool]
    of_reach: bool = False
    implies: Callable[[int, int], bool] = operator.eq

    def condition(self, argument: str, value: int) -> str:
        """Returns the guard for an argument, which is a C++ expression."""
        return self.guard.replace("{arg}", argument).replace("{value}", str(value))


EQUAL_TO = Test("{arg} == {value}", lambda number, value: number == value)
"""The argument is the value: it becomes a constant and is no parameter of the kernel any more. Only for numbers whose type the
kernel leaves open."""
DIVISIBLE_BY = Test(
    "{arg} % {value} == 0", lambda number, value: number % value == 0, implies=lambda value, other: value % other == 0
)
"""The argument is a multiple of the value. `do_not_specialize_on_alignment` excludes it."""
REACHES = Test(
    "{arg} >> ({value} - 1) == 0", lambda number, value: number >> (value - 1) == 0, of_reach=True, implies=operator.le
)
"""Offsets of so many bits, in bytes, reach every element of the tensor that a pointer points to."""


@dataclass(frozen=True)
class ArgumentProperty:
    """One of a backend's argument specializations: code may assume of arguments to which it `applies` (by their ttir type, as
    text) that the `test` holds for `value`. `name` is the attribute by which the backend's stages see it."""

    name: str
    value: int
    test: Test
    applies: Callable[[str], bool]

    def holds(self, number: int) -> bool:
        """Whether a call's argument has the property."""
        return self.test.holds(number, self.value)


def integers(kind: str) -> bool:
    """Whether a ttir type is that of the integers that sizes and strides have."""
    return kind in ("i32", "i64")


def pointers(kind: str) -> bool:
    """Whether a ttir type is a pointer."""
    return kind.startswith("!tt.ptr")


def numbers_and_pointers(kind: str) -> bool:
    return integers(kind) or pointers(kind)


@dataclass(frozen=True)
class Tool:
    """A program or library that a backend compiles with. `found` is its version and place, None where it is missing.

    `without` says what cannot be done then, and `cure` how to get it; with `needed`, no kernel compiles.
    """

    name: str
    found: str | None
    needed: bool
    without: str
    cure: str


@dataclass(frozen=True)
class Device:
    """A device of this machine, and the targets whose code it runs, the best first."""

    name: str
    targets: tuple[Target, ...]


class DescriptorForm(enum.Enum):
    """What becomes of an access through a descriptor."""

    POINTERS = enum.auto()
    DESCRIPTOR = enum.auto()
    """It stays: the backend lowers it."""
    BY_ROWS = enum.auto()
    """It stays where rows end at multiples of 16 bytes, which the kernel asks."""


class Backend(abc.ABC):
    """A backend. Subclasses are created once and hold no state of a compilation."""

    name: str
    """The first part of a target: `cuda`, `cpu`, ..."""
    image_kind: str
    """The name of the last stage, whose value is packed: `cubin`, `object`, ... Targets may have others."""
    dispatch_key: str
    """The torch dispatch key that ops register under: `CUDA`, `CPU`, ..."""
    launcher: str
    """The C++ variable of type `kernelpack::Launcher` (csrc/kernels/kernel.h) that loads and launches images. It is declared in
    `launcher_header`, which generated code includes, and defined in `launcher_sources`, which are compiled into op libraries."""
    launcher_header: Path
    launcher_sources: Sequence[Path]
    machine_code: str
    """What `kernelpack inspect` calls the image as text: `sass`, `asm`, ..."""
    line_information = False
    """Whether images say which line of source their code comes from, so that they change when lines move."""
    unused_options: frozenset[str] = frozenset()
    """Names of options that change nothing of the code: kernels that differ in these alone are compiled once."""

    @property
    def device_type(self) -> str:
        """What torch calls the devices whose tensors have the dispatch key: `torch.device.type`."""
        return self.dispatch_key.lower()

    @abc.abstractmethod
    def resolve_target(self, target: Target) -> Target:
        """Returns the target with names such as `native` resolved. Raises TargetError for what this backend cannot build."""

    @abc.abstractmethod
    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        """Returns the stages behind ttir in order, by the name `kernelpack inspect` knows them by."""

    @abc.abstractmethod
    def properties(self) -> Sequence[ArgumentProperty]:
        """Returns what this backend's code may assume of arguments, in order. It alone decides how many versions of an argument
        there are: nothing else asks whether a number is 1 or divisible by 16."""

    def tests(self) -> Mapping[str, Test]:
        """Returns how each property is decided, by its name."""
        return {prop.name: prop.test for prop in self.properties()}

    @abc.abstractmethod
    def targets(self) -> Sequence[Target]:
        """Returns every target that `resolve_target` takes, but names such as `native`."""

    @abc.abstractmethod
    def tools(self) -> Sequence[Tool]:
        """Returns what this backend compiles with, for `kernelpack doctor`."""

    @abc.abstractmethod
    def devices(self) -> Sequence[Device]:
        """Returns the devices of this machine that this backend's code runs on."""

    @abc.abstractmethod
    def disassemble(self, kernel: CompiledKernel) -> str:
        """Returns the image as text; `kernel.stages` may be empty. Raises BuildError where a tool for it is missing."""

    def code_of(self, text: str) -> str:
        """Returns the text of the last stage before the image without what makes no difference to the image's code.

        A variant that assumes facts, and whose code is that of the variant without them, is left out of op libraries.
        """
        return text

    def load(self, kernel: CompiledKernel) -> Any:
        """Returns a compiled kernel loaded for launches from Python: an object with `launch(grid, values)`."""
        raise TargetError(f"kernels for {kernel.target} cannot be launched from Python")

    def supports(self, op: Operation, target: Target) -> str | None:
        """Returns why an operation cannot be lowered, or None. Asked for every ttir operation before lowering."""
        return None

    def descriptor_form(self, access: Operation, facts: AxisInfoAnalysis, target: Target) -> DescriptorForm:
        """Returns what becomes of an access through a tensor descriptor (tt.descriptor_load, ...): the backend lowers it itself, or
        it becomes a masked access through pointers. `facts` are those of the function."""
        return DescriptorForm.POINTERS

    def linked_machine(self, target: Target) -> str | None:
        """Returns the machine whose linker takes the images, as compilers name it first (`x86_64-linux-gnu`); None: they are data."""
        return None

    def tool_versions(self) -> Mapping[str, str]:
        """Returns the tools whose version decides the image's bytes, for pack headers and caches."""
        return {}
