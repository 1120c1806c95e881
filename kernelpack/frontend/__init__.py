"""From a kernel's Python syntax to ttir: `ast_to_ttir` visits it, expression by expression."""

# its own functions are compiled by this package: whichever is first, it loads first
from kernelpack import language as language
