"""From Python to ttir: `jit` marks functions, `ast_to_ttir` compiles them."""
