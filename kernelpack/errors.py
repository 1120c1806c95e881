"""Every error class of the project; an error carries the user's file, line and column where it has one."""

from __future__ import annotations

import linecache
import traceback
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SourceLocation:
    """A place in the user's Python source. Lines and columns count from 1; column 0 means the whole line.

    `within` names the kernel or function around it and the place there, as Triton does: `kernel, at 2:4`, where the line of the
    `def` is 1 and its column 0.
    """

    file: str
    line: int
    column: int = 0
    within: str = field(default="", compare=False)

    @staticmethod
    def of_exception(error: BaseException, file: str) -> SourceLocation:
        """Returns the innermost line of a file that an exception passed; line 0 where it passed none."""
        lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        return SourceLocation(file, lines[-1] if lines else 0)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"

    def excerpt(self) -> str:
        """Returns the source line with a caret under the column, below what it is within; "" where the file cannot be read."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text.strip():
            return ""
        caret = "\n    " + " " * (self.column - 1) + "^" if self.column else ""
        within = f"\n  in {self.within}:" if self.within else ""
        return f"{within}\n    {text}{caret}"


class KernelpackError(Exception):
    """Base of all errors that kernelpack raises on purpose.

    `message` says what was expected and what came, `cure` what to do about it, `location` where in the user's source.
    """

    def __init__(self, message: str, *, location: SourceLocation | None = None, cure: str | None = None) -> None:
        self.message = message
        self.location = location
        self.cure = cure
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:  # compile workers send errors between processes
        return _rebuild, (type(self), self.message, self.location, self.cure)

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        excerpt = self.location.excerpt() if self.location else ""
        cure = f"\n  to fix: {self.cure}" if self.cure else ""
        return f"{where}{self.message}{excerpt}{cure}"


def _rebuild(kind: type[KernelpackError], message: str, location: SourceLocation | None, cure: str | None) -> KernelpackError:
    return kind(message, location=location, cure=cure)


class CompilationError(KernelpackError):
    """A kernel uses something outside the language, or uses it wrongly.

    `call_sites` says how control came to the function that `location` is in, the innermost call first.
    """

    def __init__(
        self,
        message: str,
        *,
        location: SourceLocation | None = None,
        cure: str | None = None,
        call_sites: tuple[SourceLocation, ...] = (),
    ) -> None:
        super().__init__(message, location=location, cure=cure)
        self.call_sites = call_sites

    @property
    def error_message(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), {"call_sites": self.call_sites}

    def __str__(self) -> str:
        return super().__str__() + "".join(f"\n  called from {site}{site.excerpt()}" for site in dict.fromkeys(self.call_sites))


class UnsupportedError(CompilationError):
    """A backend cannot lower an operation for its target."""


class UnsupportedLanguageConstruct(CompilationError):
    """A kernel uses Python that is not part of the language."""


class CompileTimeAssertionFailure(CompilationError):
    """A static assertion that does not hold."""


class OutOfResources(CompilationError):
    """A kernel needs more shared memory, registers or stack than the target has."""


TritonError = KernelpackError
"""The name that code written for Triton catches."""


class ParseError(KernelpackError):
    """IR text that does not parse."""


class VerifyError(KernelpackError):
    """IR that breaks a rule of its dialect: a defect of the pass that made it."""


class TargetError(KernelpackError):
    """A target that does not parse, or that no backend builds."""


class SchemaError(KernelpackError):
    """An op schema that torch would refuse or abort on."""


class HostFunctionError(KernelpackError):
    """A host function uses Python that has no C++ translation."""


class PackError(KernelpackError):
    """A kernel pack or lock file that is corrupt or does not fit."""


class BuildError(KernelpackError):
    """A tool of the build (ptxas, g++, ninja) failed."""


class UntrustedFileError(BuildError):
    """A file or folder that somebody else can have written, where what is read is run."""


class RefusedNameError(KernelpackError, ModuleNotFoundError):
    """A module or name of Triton's that has no meaning here: what asks whether it can be imported takes it for absent."""


class StandInError(KernelpackError, ImportError):
    """`import triton` cannot mean kernelpack here."""


class ProfilerError(KernelpackError):
    """A call of kernelpack.profiler that cannot be followed."""


class LaunchError(KernelpackError):
    """A launch that cannot be made: no variant, wrong argument, driver failure."""


class MissingKernelError(LaunchError):
    """A kernel that was not compiled ahead of time, where KERNELPACK_MISS=error lets nothing be compiled."""


class MemoryAccessError(LaunchError):
    """A kernel that reads or writes outside of its arguments: on the interpreter, or compiled so that it checks itself. Of a compiled
    one, `address` is what it was about to read or write, and `parameter` the number of the parameter that led there."""

    address: int | None = None
    parameter: int | None = None


class StepLimitError(LaunchError):
    """A launch on the interpreter that runs more operations than it may."""


class RunTimeAssertionFailure(LaunchError, RuntimeError, AssertionError):
    """A run-time assertion that does not hold: a RuntimeError, as torch's for GPUs, and an AssertionError, as in Triton's interpreter."""


class ArgumentOverflowError(LaunchError, OverflowError):
    """An integer argument that no integer type holds."""


class UnreachableMemoryError(LaunchError, ValueError):
    """A tensor argument whose memory the kernel's device cannot read."""


class DescriptorError(LaunchError, AssertionError):
    """A tensor that no tensor descriptor describes: an AssertionError, as Triton's."""


class BlockShapeError(LaunchError, ValueError):
    """A tensor descriptor whose blocks have a shape that no tile has."""


class OptionError(LaunchError, AssertionError):
    """An option of a launch, such as num_warps, with a value that none has."""


class AutotunerError(LaunchError):
    """An autotuned kernel for which no config is left."""

    def __str__(self) -> str:
        return f"Autotuner error: {self.message}"


class EmulationError(KernelpackError):
    """What the SIMT emulator found in a kernel: `kind` is race, deadlock, out of bounds, ...; `site` the line of its llir."""

    def __init__(
        self,
        message: str,
        *,
        location: SourceLocation | None = None,
        cure: str | None = None,
        kind: str = "",
        site: int = 0,
    ) -> None:
        super().__init__(message, location=location, cure=cure)
        self.kind = kind
        self.site = site
