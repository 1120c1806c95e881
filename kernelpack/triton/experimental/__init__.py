"""triton.experimental: Gluon's home, and nothing else."""

from kernelpack.refusals import refused_names

__path__ = []
"""Who asks whether there is a Gluon finds none. Who imports it is told why."""

__getattr__ = refused_names(__name__)
