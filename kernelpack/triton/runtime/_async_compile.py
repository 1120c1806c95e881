"""triton.runtime._async_compile: what threads compile."""

from kernelpack.runtime._async_compile import AsyncCompileMode as AsyncCompileMode
from kernelpack.runtime._async_compile import active_mode as active_mode
