"""From Python to ttir: `jit` marks functions, `ast_to_ttir` compiles them."""

import kernelpack.language  # noqa: F401  (its own functions are compiled by this package: whichever is first, it loads first)
