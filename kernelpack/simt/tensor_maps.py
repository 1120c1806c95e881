"""Tensor maps as the emulator's launcher encodes them: from the text that the compiler recorded, for csrc/simt/tensor_memory.cpp."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Mapping

from kernelpack.errors import LaunchError

_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: 0 if b == 0 else int(a / b) if abs(a) < 1 << 50 else a // b,
    "%": lambda a, b: a if b == 0 else a - b * int(a / b),
    ">?": max,
    "<?": min,
}
_RANK = 5


def encode(text: str, values: Mapping[str, int]) -> bytes:
    """Returns the 128 bytes of a map, given the kernel's parameters by name. Raises LaunchError for what hardware refuses."""
    element, *rest = (part.strip() for part in text.split(";"))
    fields = {
        name.strip(): [entry.strip() for entry in entries.split(",")]
        for name, _, entries in (part.partition(":") for part in rest)
    }
    width = int(re.findall(r"\d+", element)[0]) // 8
    (address,) = (_evaluate(entry, values) for entry in fields["base"])
    sizes = [_evaluate(entry, values) for entry in fields["sizes"]][::-1]
    strides = [_evaluate(entry, values) * width for entry in fields["strides"] if entry][::-1]
    strides = [16 if size == 1 else stride for stride, size in zip(strides, sizes[1:], strict=True)]
    box = [int(entry) for entry in fields["box"]][::-1]
    if address % 16 or any(stride % 16 or stride < 0 for stride in strides):
        raise LaunchError(f"a tensor map for address {address:#x} and strides of {strides} bytes: they must be multiples of 16")
    pad = (0,) * _RANK
    packed = struct.pack(
        "<Q5Q5Q5H4B", address, *[*sizes, *pad][:_RANK], *[width, *strides, *pad][:_RANK], *[*box, *pad][:_RANK], len(sizes), width,
        int(fields["swizzle"][0]), int(fields["padding"][0] == "nan"),
    )  # fmt: skip
    return packed.ljust(128, b"\0")


def _evaluate(expression: str, values: Mapping[str, int]) -> int:
    stack: list[int] = []
    for word in expression.split():
        if word in _OPERATORS:
            right = stack.pop()
            stack.append(_OPERATORS[word](stack.pop(), right))
        else:
            stack.append(int(values[word]) if word in values else int(word))
    return stack[0]
