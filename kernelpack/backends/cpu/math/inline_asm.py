"""What a kernel with PTX is told on a CPU: which functions of the language do what its instructions do."""

from __future__ import annotations

import re

_ARITHMETIC = "operators (+, -, *, //, %)"
_BITS = "operators (&, |, ^, ~, <<, >>)"
_INSTEAD = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "div", "rem", "neg"), _ARITHMETIC),
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "shf", "lop3", "bfe", "bfi", "prmt"), _BITS),
    **dict.fromkeys(("set", "setp"), "comparisons"),
    **dict.fromkeys(("ld", "ldu"), "tl.load"),
    **dict.fromkeys(("atom", "red"), "tl.atomic_add and its like"),
    **dict.fromkeys(("bar", "barrier", "membar", "fence"), "tl.debug_barrier"),
    **dict.fromkeys(("dp4a", "dp2a"), "tl.dot of int8, or a sum of four products of bytes"),
    "abs": "tl.abs", "brev": "libdevice.brev", "clz": "libdevice.clz", "copysign": "libdevice.copysign", "cos": "tl.cos",
    "cvt": "x.to(dtype)", "ex2": "tl.exp2", "fma": "tl.fma", "lg2": "tl.log2", "max": "tl.maximum", "min": "tl.minimum",
    "mma": "tl.dot", "mul.hi": "tl.umulhi", "popc": "libdevice.popc", "rcp": "1 / x",
    "rsqrt": "tl.rsqrt", "sad": "tl.abs", "selp": "tl.where", "shfl": "tl.gather", "sin": "tl.sin", "sqrt": "tl.sqrt",
    "st": "tl.store", "tanh": "libdevice.tanh", "testp": "libdevice.isinf and its like", "wmma": "tl.dot",
}  # fmt: skip
"""What to write in place of an instruction, by the first parts of its name."""

_STATEMENT = re.compile(r"(?:^|[;{}:\n])\s*(?:@!?%?\w+\s+)?([a-z]\w*(?:\.\w+)*)(?=[\s;])")


def instead_of(asm: str) -> str:
    """Returns why PTX cannot be compiled for a CPU, with what does the same there."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(_STATEMENT.findall(re.sub(r"//[^\n]*|/\*.*?\*/", "", asm, flags=re.DOTALL))):
        first, _, rest = name.partition(".")
        key = f"{first}.hi" if f"{first}.hi" in _INSTEAD and "hi" in rest.split(".") else first
        if key in _INSTEAD and key not in found.setdefault(_INSTEAD[key], []):
            found[_INSTEAD[key]].append(key)
    uses = ", ".join(f"{function} for {' and '.join(names)}" for function, names in found.items())
    return "it is PTX, which GPUs alone execute" + (f"; every target has {uses}" if uses else "")
