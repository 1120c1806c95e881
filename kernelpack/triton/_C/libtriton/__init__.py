"""triton._C.libtriton: what of Triton's C++ has a meaning here. MLIR has none, and is refused."""

from kernelpack.refusals import refused_names
from kernelpack.runtime.cache import get_cache_invalidating_env_vars as get_cache_invalidating_env_vars

__getattr__ = refused_names(__name__)
