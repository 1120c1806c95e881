"""The contract between kernelpack and a backend. Everything a backend is asked for stands on this page."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.backends.devices import DriverBase
from kernelpack.compiled import POINTERS, CompiledKernel, DescriptorForm
from kernelpack.context import Context, Hook
from kernelpack.errors import BuildError, OutOfResources, TargetError
from kernelpack.facts import ArgumentProperty, Test
from kernelpack.ir.core import Operation
from kernelpack.llvm import codegen
from kernelpack.options import Options
from kernelpack.target import Target

if TYPE_CHECKING:
    from kernelpack.analysis.axis_info import AxisInfoAnalysis

CSRC = next(
    (folder for folder in (Path(__file__).parents[1] / "csrc", Path(__file__).parents[2] / "csrc") if folder.is_dir()),
    Path(__file__).parents[2] / "csrc",
)
"""The C++ runtime: inside the package when installed, beside it in a checkout."""


@dataclass(frozen=True)
class Opened:
    """A kernel's code where this process can launch it."""

    code: bytes | int
    """The image, which the backend's launcher loads at the first launch; or the address of code that is loaded."""
    place: Callable[[Sequence[Any]], tuple[int, int]] = lambda values: (0, 0)
    """Returns the number of the device and the stream that a launch runs on, by its run-time arguments."""
    keeper: object = None
    """What must live as long as the code."""


Stage = Callable[[Any, Any], Any]
"""Takes the value of the stage before (ttir first) and the backend's Context, and returns its own value; `str()` of it, or the bytes,
is what inspect shows. A stage that rewrites IR is a Pipeline."""


@dataclass(frozen=True)
class Failed:
    """An attempt to compile a kernel that failed: in which stage, why, and what its context knew by then."""

    stage: str
    problem: BuildError | OutOfResources
    context: Any


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


def llvm_tool() -> Tool:
    """Returns LLVM, by which every backend of kernelpack's own compiles."""
    cure = "pip install 'kernelpack[build]', which brings llvmlite"
    return Tool("LLVM", codegen.installed(), True, "no kernel compiles", cure)


@dataclass(frozen=True)
class Device:
    """A device of this machine, and the targets whose code it runs, the best first."""

    name: str
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class LauncherSource:
    """The C++ that loads and launches images: a `kernelpack::Launcher` (csrc/kernels/kernel.h).

    `variable` is its name; it is declared in `header`, which generated code includes, and defined in `sources`, which are compiled into
    op libraries.
    """

    variable: str
    header: Path
    sources: tuple[Path, ...]


class Backend(abc.ABC):
    """A backend. Subclasses are created once and hold no state of a compilation."""

    name: str
    """The first part of a target: `cuda`, `cpu`, ..."""
    image_kind: str
    """The name of the last stage, whose value is packed: `cubin`, `object`, ... Targets may have others."""
    dispatch_key: str
    """The torch dispatch key that ops register under: `CUDA`, `CPU`, ..."""
    launcher: LauncherSource | None = None
    """What launches its images; None: code is generated, and nothing here launches it."""
    machine_code: str
    """What `kernelpack inspect` calls the image as text: `sass`, `asm`, ..."""
    notes: tuple[str, ...] = ()
    """Texts that stages write beside their values (Context.notes), which `kernelpack inspect --stage` shows too."""
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

    def native_target(self) -> Target:
        """Returns the target that this machine's device runs best."""
        return self.resolve_target(Target(self.name, "native"))

    def runs_code_of(self, target: Target) -> Sequence[Target]:
        """Returns the targets whose code a device runs that this process launches code for `target` on, the best first."""
        return (target,)

    def code_target(self, target: Target, module: Operation) -> Target:
        """Returns the target whose code a kernel has that is compiled for a target: another one where it gains nothing from what this one
        adds. `module` is its ttir."""
        return target

    @abc.abstractmethod
    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        """Returns the stages after ttir in order, by the name `kernelpack inspect` knows them by."""

    def context(self, target: Target, options: Options, entry: str, attempt: Any, hooks: Sequence[Hook]) -> Context:
        """Returns what travels through the stages of one attempt."""
        return Context(target, options, entry, attempt, hooks=hooks)

    def attempts(self, target: Target, options: Options) -> Sequence[Any]:
        """Returns in which ways a kernel is compiled, until one of them compiles. The first error is raised where none does."""
        return (None,)

    def may_help(self, attempt: Any, failed: Failed) -> bool:
        """Whether an attempt can succeed after the one before it failed; it is left out otherwise."""
        return True

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

    def open(self, kernel: CompiledKernel) -> Opened:
        """Returns a compiled kernel's code where this process can launch it."""
        raise TargetError(f"kernels for {kernel.target} cannot be launched from Python")

    def libraries(self, kernel: CompiledKernel, names: Sequence[str]) -> Mapping[str, Callable[[], bytes]]:
        """Returns what makes the libraries by which other programs launch a kernel, by the names that `kernel.asm` has for them; `names` are
        those of all arguments of its function."""
        return {}

    def driver(self) -> type[DriverBase] | None:
        """Returns what host code asks of the devices; None: nothing runs on them unless a launch names the target."""
        return None

    def supports(self, op: Operation, target: Target) -> str | None:
        """Returns why an operation cannot be lowered, or None. Asked for every ttir operation before lowering."""
        return None

    def descriptor_form(self, access: Operation, facts: AxisInfoAnalysis, target: Target) -> DescriptorForm:
        """Returns what becomes of an access through a tensor descriptor (tt.descriptor_load, ...): the backend lowers it itself, or
        it becomes a masked access through pointers. `facts` are those of the function."""
        return POINTERS

    def without_lines(self, image: bytes) -> bytes:
        """Returns an image without what says which line of source its code comes from: what libraries hold unless asked for more."""
        return image

    def linked_machine(self, target: Target) -> str | None:
        """Returns the machine whose linker takes the images, as compilers name it first (`x86_64-linux-gnu`); None: they are data."""
        return None

    def caveat(self, target: Target) -> str | None:
        """Returns what people must know before they rely on code for a target, such as that it was never run; None: nothing."""
        return None

    def tool_versions(self) -> Mapping[str, str]:
        """Returns the tools whose version decides the image's bytes, for pack headers and caches."""
        return {}

    def cache_key(self) -> str:
        """Returns what cache keys say of this backend's tools: their versions, and what else of theirs becomes part of code."""
        return json.dumps(dict(self.tool_versions()), sort_keys=True)
