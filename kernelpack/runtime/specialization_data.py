"""What a call is compiled for as text, from which another process compiles the same: Triton's JSON, with constants as key_text has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernelpack.compiler.target_backend import TargetOptions
from kernelpack.errors import KernelpackError
from kernelpack.files.document import Shape, checked, read_document
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import OPTION_TYPES
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.key_text import as_json, from_json
from kernelpack.target import GPUTarget

_PATHS: Shape = [[int | str]]
_DATA: Shape = {
    "name": str,
    "signature": {...: object},
    "constant_keys": _PATHS,
    "constant_vals": [object],
    "attrs_keys": _PATHS,
    "attrs_vals": [[(str, int)]],
    "options": {**OPTION_TYPES, "arch": str},
    "key": str,
    "target": {"backend": str, "arch": int | str, "warp_size": int},
}


def serialize_specialization_data(
    name: str,
    signature: Mapping[str, Any],
    constants: Mapping[tuple[Any, ...], Any],
    attrs: Mapping[tuple[Any, ...], Sequence[Sequence[Any]]],
    options: TargetOptions,
    key: str,
    target: GPUTarget,
) -> str:
    """Returns the text of what a kernel is compiled for. Raises TypeError for a constant that cannot be written down."""
    return json.dumps(
        {
            "name": name,
            "signature": dict(signature),
            "constant_keys": [list(path) for path in constants],
            "constant_vals": [as_json(value) for value in constants.values()],
            "attrs_keys": [list(path) for path in attrs],
            "attrs_vals": [list(map(list, found)) for found in attrs.values()],
            "options": vars(options),
            "key": key,
            "target": vars(target),
        }
    )


def read_specialization_data(fn: JITFunction, data: str, active: GPUTarget) -> tuple[str, ASTSource, TargetOptions]:
    """Returns the key, the source and the options that serialize_specialization_data wrote. Raises RuntimeError for text of another kernel
    or kind of device, or of none."""
    try:
        name = read_document(data, {"name": str, ...: object})["name"]
        if name != fn.full_name:
            raise RuntimeError(f"Specialization data is for {name} but trying to preload for {fn.full_name}")
        read = checked(json.loads(data), _DATA)
        if read["target"]["backend"] != active.backend:
            raise RuntimeError(f"Specialization data is for {read['target']} but the active target is {active}")
        constants = zip(map(tuple, read["constant_keys"]), map(from_json, read["constant_vals"]), strict=True)
        attrs = zip(map(tuple, read["attrs_keys"]), read["attrs_vals"], strict=True)
        signature = {name: _types(kind) for name, kind in read["signature"].items()}
        source = ASTSource(fn, signature, dict(constants), dict(attrs))
        hash(source.specialization)  # which it has, if every place in it is one of the kernel's
        return read["key"], source, TargetOptions(**read["options"])
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError, KernelpackError) as problem:
        raise RuntimeError(f"Specialization data cannot be read: {problem}") from None


def _types(written: Any) -> Any:
    """Returns a type of a signature, for which JSON has lists in the place of tuples."""
    return tuple(map(_types, written)) if isinstance(written, list) else str(written)
