"""IR text: printing and parsing, in the forms of Triton's `.ttir` files."""

from kernelpack.ir.parser import parse_module
from kernelpack.ir.printer import print_op, value_names

__all__ = ["parse_module", "print_op", "value_names"]
