"""triton._utils: places in nested tuples."""

from kernelpack.kernel.paths import find_paths_if as find_paths_if
from kernelpack.kernel.paths import get_iterable_path as get_iterable_path
