"""Names of triton.language that are not supported yet, with what to use instead: refused by name, not as unknown."""

UNSUPPORTED: dict[str, str] = {
    "pow": "write x * x, or tl.exp2(y * tl.log2(x))",
}
