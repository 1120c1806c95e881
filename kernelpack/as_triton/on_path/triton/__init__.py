"""`import triton` in a process that has this folder on its path: Inductor's compile workers get the path of the process that starts them."""

import sys
from importlib import import_module

from kernelpack import as_triton

del sys.modules[__name__]  # this module: what is imported next takes its place
as_triton.install()
import_module(__name__)
