"""triton.backends.compiler: targets, and the backends for one."""

from kernelpack.compiler.target_backend import Language as Language
from kernelpack.compiler.target_backend import TargetBackend as BaseBackend
from kernelpack.target import GPUTarget as GPUTarget

__all__ = ["BaseBackend", "GPUTarget", "Language"]
