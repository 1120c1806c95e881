"""tl.extra: what only some machines have. Elsewhere its functions do nothing."""

from kernelpack.language.extra import cuda as cuda
