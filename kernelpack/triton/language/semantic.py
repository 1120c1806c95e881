"""triton.language.semantic: how Triton's front end makes MLIR, which has no meaning here."""

from kernelpack.refusals import refused_names

__getattr__ = refused_names(__name__)
