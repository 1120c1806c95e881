"""triton._C.libtriton: what of Triton's C++ has a meaning here. Making and changing MLIR has none, and is refused."""

from kernelpack.refusals import refused_names
from kernelpack.runtime.cache import get_cache_invalidating_env_vars as get_cache_invalidating_env_vars
from kernelpack.triton._C.libtriton import ir as ir

__getattr__ = refused_names(__name__)
