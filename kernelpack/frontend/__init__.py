"""From Python to ttir: `jit` marks functions, `ast_to_ttir` compiles them."""

# its own functions are compiled by this package: whichever is first, it loads first
from kernelpack import language as language
