"""The dialect tables of ttir. Importing this package makes every operation known."""

from kernelpack.ir.dialects import arith, builtin, cpu, descriptors, gpu, math, scf, shapes, tile_ops, tt

__all__ = ["arith", "builtin", "cpu", "descriptors", "gpu", "math", "scf", "shapes", "tile_ops", "tt"]
