"""triton.experimental: Gluon's home, and nothing else."""

from kernelpack.triton import _gluon as gluon

__all__ = ["gluon"]
__path__ = []
"""Who asks whether there is a Gluon finds none. What is imported as triton.experimental.gluon is kernelpack.triton._gluon."""
