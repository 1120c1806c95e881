"""Tensor maps as launchers read them: text in which the kernel's parameters are numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelpack.backends.base import Parameter

READABLE = {"i8": "b", "i16": "h", "i32": "i", "i64": "l"}
"""The integers that sizes and strides may be computed from, and the letter of each; a pointer's is p."""


def launcher_text(maps: Sequence[str], parameters: Sequence[Parameter]) -> str:
    """Returns a kernel's tensor maps as csrc/kernels/tensor_map.h reads them; empty where there are none.

    A letter for how each parameter lies in memory, then the maps, a line each, with `$i` for parameter i.
    """
    if not maps:
        return ""
    numbers = {parameter.name: f"${index}" for index, parameter in enumerate(parameters)}
    letters = ["p" if parameter.type.startswith("!tt.ptr") else READABLE.get(parameter.type, "x") for parameter in parameters]

    def numbered(field: re.Match[str]) -> str:
        return field[1] + re.sub(r"[A-Za-z_]\w*", lambda word: numbers[word[0]], field[2])

    return "\n".join(["".join(letters), *(re.sub(r"((?:base|sizes|strides):)([^;]*)", numbered, text) for text in maps)])
