"""triton.runtime.errors: the errors of launching."""

from kernelpack.errors import AutotunerError as AutotunerError
from kernelpack.errors import BuildError as PTXASError
from kernelpack.errors import (
    CompilationError as InterpreterError,  # what an interpreter finds at run time, compiling finds here
)
from kernelpack.errors import OutOfResources as OutOfResources
from kernelpack.errors import TritonError as TritonError

__all__ = [
    "AutotunerError",
    "InterpreterError",
    "OutOfResources",
    "PTXASError",
    "TritonError",
]
