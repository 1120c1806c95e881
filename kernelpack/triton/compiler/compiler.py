"""triton.compiler.compiler: kernels compiled for a target with stated types and constants, and what that is made with."""

from kernelpack import knobs as knobs
from kernelpack.backends.cuda.assemble.sass import get_sass as get_sass
from kernelpack.compiler.target_backend import Language as Language
from kernelpack.compiler.target_backend import TargetBackend as BaseBackend
from kernelpack.knobs.hooks import LazyDict as LazyDict
from kernelpack.refusals import refused_names
from kernelpack.runtime.ahead_of_time import ASTSource as ASTSource
from kernelpack.runtime.cache import get_cache_invalidating_env_vars as get_cache_invalidating_env_vars
from kernelpack.runtime.cache import get_cache_manager as get_cache_manager
from kernelpack.runtime.cache import get_dump_manager as get_dump_manager
from kernelpack.runtime.cache import get_override_manager as get_override_manager
from kernelpack.runtime.cache import triton_key as triton_key
from kernelpack.runtime.compile import compile as compile
from kernelpack.runtime.device_kinds import make_backend as make_backend
from kernelpack.runtime.driver import driver as driver
from kernelpack.runtime.kernel_view import KernelView as CompiledKernel
from kernelpack.runtime.keys import get_cache_key as get_cache_key
from kernelpack.target import GPUTarget as GPUTarget
from kernelpack.triton.runtime.errors import OutOfResources as OutOfResources

__all__ = [
    "ASTSource",
    "BaseBackend",
    "CompiledKernel",
    "GPUTarget",
    "Language",
    "LazyDict",
    "OutOfResources",
    "compile",
    "driver",
    "get_cache_invalidating_env_vars",
    "get_cache_key",
    "get_cache_manager",
    "get_dump_manager",
    "get_override_manager",
    "get_sass",
    "knobs",
    "make_backend",
    "triton_key",
]

__getattr__ = refused_names(__name__)
