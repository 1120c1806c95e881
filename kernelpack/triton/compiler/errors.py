"""triton.compiler.errors: the errors of compiling."""

from kernelpack.errors import CompilationError as CompilationError
from kernelpack.errors import CompileTimeAssertionFailure as CompileTimeAssertionFailure
from kernelpack.errors import UnsupportedLanguageConstruct as UnsupportedLanguageConstruct
