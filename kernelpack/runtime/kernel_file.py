"""A compiled kernel as a file: a header that a person reads, then the bytes of its image and stages. Reading it runs nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from kernelpack.compiled import CompiledKernel, Parameter
from kernelpack.descriptors import launcher_text
from kernelpack.errors import PackError, TargetError
from kernelpack.facts import Fact
from kernelpack.files.document import Shape, read_document
from kernelpack.options import OPTION_TYPES, Options
from kernelpack.target import Target

_FIRST_LINE = b"kernelpack compiled kernel, version 1"
_CURE = "remove the file: the kernel is compiled again"

_HEADER: Shape = {
    "entry": str,
    "target": str,
    "options": {f"{name}?": kind for name, kind in OPTION_TYPES.items()},
    "parameters": [(str, str)],
    "facts": [(str, str, int)],
    "image kind": str,
    "image bytes": int,
    "metadata": {
        **dict.fromkeys(("num_warps?", "num_ctas?"), range(2**31)), **dict.fromkeys(("shared?", "registers?", "spills?"), int),
        "program_ns?": float, ...: object,
    },
    "stages": [(str, str, int)],
    "code sha256": str,
    "descriptors": [str],
}  # fmt: skip


def kernel_bytes(kernel: CompiledKernel) -> bytes:
    """Returns what a file holds of a kernel: a line that says what it is, the SHA-256 of the rest, a line of JSON, and bytes: the
    image, then each stage that is not the image. `parse_kernel` is inverse.

    Raises PackError for a kernel that would not be read as it is: its metadata has types that JSON has not.
    """
    stages = {name: value if isinstance(value, bytes) else str(value).encode() for name, value in kernel.stages.items()}
    kinds = {name: "bytes" if isinstance(value, bytes) else "text" for name, value in kernel.stages.items()}
    kinds |= {name: "image" for name, value in kernel.stages.items() if value == kernel.image}
    header = {
        "entry": kernel.entry,
        "target": str(kernel.target),
        "options": asdict(kernel.options),
        "parameters": [[one.name, one.type] for one in kernel.parameters],
        "facts": [[one.parameter, one.property, one.value] for one in kernel.facts],
        "image kind": kernel.image_kind,
        "image bytes": len(kernel.image),
        "metadata": kernel.metadata,
        "stages": [[name, kind, len(stages[name])] for name, kind in kinds.items()],
        "code sha256": kernel.code_sha256,
        "descriptors": kernel.descriptors,
    }
    try:
        parts = [kernel.image, *(stages[name] for name, kind in kinds.items() if kind != "image")]
        body = b"".join([json.dumps(header).encode(), b"\n", *parts])
        data = b"\n".join([_FIRST_LINE, hashlib.sha256(body).hexdigest().encode(), body])
        same = parse_kernel(data) == kernel
    except (TypeError, ValueError, PackError):
        same = False
    if not same:
        raise PackError(
            f"kernel {kernel.entry} cannot be kept in a file: its metadata are no numbers, texts and tuples of these"
        )
    return data


def parse_kernel(data: bytes, name: str = "kernel") -> CompiledKernel:
    """Returns the kernel that `kernel_bytes` wrote. Raises PackError for anything else: cut short, altered, of another version."""
    start = len(_FIRST_LINE) + 1
    body = start + 64 + 1  # after the SHA-256, in hexadecimal digits
    if data[:start] != _FIRST_LINE + b"\n":
        raise PackError(f"{name}:1: it is no compiled kernel, or one of another version", cure=_CURE)
    if data[start:body] != hashlib.sha256(memoryview(data)[body:]).hexdigest().encode() + b"\n":
        raise PackError(f"{name}:2: the kernel was altered: its SHA-256 does not fit", cure=_CURE)
    parts = data.find(b"\n", body) + 1
    try:
        return _kernel(read_document(data[body:parts], _HEADER), data, parts)
    except (TargetError, PackError) as problem:
        raise PackError(f"{name}:3: this describes no kernel: {problem.message}", cure=_CURE) from None
    except ValueError as problem:
        raise PackError(f"{name}:3: this describes no kernel: {problem}", cure=_CURE) from None


def _kernel(header: dict[str, Any], data: bytes, taken: int) -> CompiledKernel:
    """Returns the kernel that a header describes, whose bytes begin at a place. Raises ValueError, TargetError and PackError for a header
    that kernel_bytes does not write."""

    view = memoryview(data)

    def take(size: int) -> memoryview:
        nonlocal taken
        start, taken = taken, taken + size
        if not start <= taken <= len(data):
            raise ValueError(f"{size} bytes are stated, {len(data) - start} are there")
        return view[start:taken]

    image = bytes(take(header["image bytes"]))
    stages: dict[str, Any] = {}
    for name, kind, size in header["stages"]:
        stages[name] = image if kind == "image" else str(take(size), "utf-8") if kind == "text" else bytes(take(size))
    if taken != len(data):
        raise ValueError(f"there are {len(data) - taken} bytes more than stated")
    parameters = tuple(Parameter(name, kind) for name, kind in header["parameters"])
    launcher_text(header["descriptors"], parameters)
    return CompiledKernel(
        entry=header["entry"],
        target=Target.parse(header["target"]),
        options=Options(**header["options"]),
        parameters=parameters,
        facts=tuple(Fact(*fact) for fact in header["facts"]),
        image_kind=header["image kind"],
        image=image,
        metadata={name: _with_tuples(value) for name, value in header["metadata"].items()},
        stages=stages,
        code_sha256=header["code sha256"],
        descriptors=tuple(header["descriptors"]),
    )


def _with_tuples(value: Any) -> Any:
    """Returns a value of JSON with tuples for lists, which is what kernels have."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
