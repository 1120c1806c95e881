"""The errors of compiling, where code written for Triton imports them from."""

from kernelpack.errors import CompilationError as CompilationError
from kernelpack.errors import CompileTimeAssertionFailure as CompileTimeAssertionFailure
from kernelpack.errors import UnsupportedLanguageConstruct as UnsupportedLanguageConstruct
