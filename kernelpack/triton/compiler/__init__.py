"""triton.compiler: compiling without launching."""

from kernelpack.refusals import refused_names
from kernelpack.triton.compiler import compiler as compiler
from kernelpack.triton.compiler import errors as errors
from kernelpack.triton.compiler.compiler import ASTSource as ASTSource
from kernelpack.triton.compiler.compiler import CompiledKernel as CompiledKernel
from kernelpack.triton.compiler.compiler import GPUTarget as GPUTarget
from kernelpack.triton.compiler.compiler import LazyDict as LazyDict
from kernelpack.triton.compiler.compiler import compile as compile
from kernelpack.triton.compiler.compiler import get_cache_key as get_cache_key
from kernelpack.triton.compiler.compiler import make_backend as make_backend
from kernelpack.triton.compiler.errors import CompilationError as CompilationError

__getattr__ = refused_names(__name__)
