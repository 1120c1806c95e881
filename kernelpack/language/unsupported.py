"""Names of triton.language that are not supported yet, with what to use instead: refused by name, not as unknown."""

_BLOCK_POINTERS = "use a tile of pointers with mask= and other="
_LATER = "it is not supported yet"

UNSUPPORTED: dict[str, str] = {
    "advance": _BLOCK_POINTERS,
    "atomic_and": _LATER,
    "atomic_cas": _LATER,
    "atomic_max": _LATER,
    "atomic_min": _LATER,
    "atomic_or": _LATER,
    "atomic_xchg": _LATER,
    "atomic_xor": _LATER,
    "bitonic_merge": _LATER,
    "device_assert": "use tl.static_assert for what is known at compile time",
    "device_print": "store what you want to see to a buffer; tl.static_print prints at compile time",
    "dot_scaled": _LATER,
    "flip": _LATER,
    "gather": "load through computed pointers",
    "histogram": _LATER,
    "inline_asm_elementwise": "use tl.math; kernels are compiled for CPUs too",
    "make_block_ptr": _BLOCK_POINTERS,
    "map_elementwise": _LATER,
    "pow": "write x * x, or tl.exp2(y * tl.log2(x))",
    "sort": _LATER,
    "topk": _LATER,
    "xor_sum": "use tl.reduce with a @jit function that returns a ^ b",
}
