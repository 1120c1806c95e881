"""Descriptors of tensors that launchers make: what hardware that copies blocks by itself must know of a tensor in memory.

A launcher computes them of a kernel's parameters at each launch, and passes them after these. A descriptor is text in fields:

    f16; base: x; sizes: M, K; strides: stride; ...

`base`, `sizes` and `strides` are expressions of parameters in postfix form (`K 2 *`); strides count elements and leave out the last,
which is 1. What else the hardware asks for, such as the block, follows in fields of the backend's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpack.compiled import Parameter
from kernelpack.errors import PackError

READABLE = {"i8": "b", "i16": "h", "i32": "i", "i64": "l"}
"""The integers that sizes and strides may be computed from, and the letter of each; a pointer's is p."""


_FIELDS = re.compile(r"((?:base|sizes|strides):)([^;]*)")
_NAMES = re.compile(r"[A-Za-z_]\w*")


def launcher_text(descriptors: Sequence[str], parameters: Sequence[Parameter]) -> str:
    """Returns a kernel's descriptors as launchers read them (csrc/kernels/kernel.h); empty where there are none.

    A letter for how each parameter lies in memory, then the descriptors, a line each, with `$i` for parameter i. Raises PackError for one
    of what is no parameter.
    """
    if not descriptors:
        return ""
    numbers = {parameter.name: f"${index}" for index, parameter in enumerate(parameters)}
    for text in descriptors:
        for name in (name for field in _FIELDS.finditer(text) for name in _NAMES.findall(field[2]) if name not in numbers):
            raise PackError(
                f"a descriptor is computed from {name!r}, which is no parameter of the kernel: {text}", cure="build it again"
            )
    letters = ["p" if parameter.type.startswith("!tt.ptr") else READABLE.get(parameter.type, "x") for parameter in parameters]

    def numbered(field: re.Match[str]) -> str:
        return field[1] + _NAMES.sub(lambda word: numbers[word[0]], field[2])

    return "\n".join(["".join(letters), *(_FIELDS.sub(numbered, text) for text in descriptors)])
