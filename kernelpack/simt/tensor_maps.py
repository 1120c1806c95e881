"""Tensor maps as the emulator's launcher encodes them, from the text that the compiler recorded, for csrc/simt."""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class TensorMap:
    """A map for one launch, innermost dimension first: sizes and box in elements, strides in bytes, first an element's."""

    element: str
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    nan: bool

    def encode(self) -> bytes:
        """Returns the 128 bytes that the emulator reads."""
        lists = [[*values, *[0] * _RANK][:_RANK] for values in (self.sizes, self.strides, self.box)]
        sizes, strides, box = lists
        packed = struct.pack(
            "<Q5Q5Q5H4B", self.address, *sizes, *strides, *box, len(self.sizes), self.strides[0], self.swizzle, self.nan
        )
        return packed.ljust(128, b"\0")


def tensor_map(text: str, values: Mapping[str, int]) -> TensorMap:
    """Returns a map, given the kernel's parameters by name. Raises LaunchError for what hardware refuses."""
    element, *rest = (part.strip() for part in text.split(";"))
    fields: dict[str, list[str]] = {}
    for part in rest:
        name, _, entries = part.partition(":")
        fields[name.strip()] = [entry.strip() for entry in entries.split(",") if entry.strip()]
    width = int(re.findall(r"\d+", element)[0]) // 8
    (address,) = (_evaluate(entry, values) for entry in fields["base"])
    sizes = [_evaluate(entry, values) for entry in fields["sizes"]][::-1]
    strides = [_evaluate(entry, values) * width for entry in fields["strides"]][::-1]
    # along a dimension of one element nothing is walked
    strides = [16 if size == 1 else stride for stride, size in zip(strides, sizes[1:], strict=True)]
    box = [int(entry) for entry in fields["box"]][::-1]
    if address % 16 or any(stride % 16 or stride < 0 for stride in strides):
        raise LaunchError(f"a tensor map for address {address:#x} and strides of {strides} bytes: they must be multiples of 16")
    padding = fields["padding"] == ["nan"]
    return TensorMap(element, address, tuple(sizes), (width, *strides), tuple(box), int(fields["swizzle"][0]), padding)


def _evaluate(expression: str, values: Mapping[str, int]) -> int:
    stack: list[int] = []
    for word in expression.split():
        if word in _OPERATORS:
            right = stack.pop()
            stack.append(_OPERATORS[word](stack.pop(), right))
        else:
            stack.append(int(values[word]) if word in values else int(word))
    return stack[0]
