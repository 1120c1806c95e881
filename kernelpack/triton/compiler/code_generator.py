"""triton.compiler.code_generator: Triton's front end, which makes MLIR and has no meaning here."""

from kernelpack.refusals import refused_names

__getattr__ = refused_names(__name__)
