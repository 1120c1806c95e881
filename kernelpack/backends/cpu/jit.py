"""Loads CPU objects into this process and runs them, for launches from Python."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from kernelpack.llvm.codegen import initialise

if TYPE_CHECKING:
    from kernelpack.compiler import CompiledKernel

_RANGE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_SCALARS = {"i1": "?", "f16": "e", "f32": "f", "f64": "d"}


class _Launch(ctypes.Structure):
    _fields_ = [("params", ctypes.c_void_p), ("grid", ctypes.c_uint32 * 3)]


class LoadedObject:
    """A CPU kernel in this process. Programs run one after the other, on the calling thread."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        initialise()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(kernel.image))
        self._engine.finalize_object()
        self._run = _RANGE(self._engine.get_function_address(kernel.entry))

    def launch(self, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        """Runs every program of a grid; `values` are the run-time arguments in order, tensors or numbers."""
        cells = [_cell(parameter.type, value) for parameter, value in zip(self.kernel.parameters, values, strict=True)]
        params = (ctypes.c_void_p * max(1, len(cells)))(*[ctypes.addressof(cell) for cell in cells])
        launch = _Launch(ctypes.cast(params, ctypes.c_void_p), (ctypes.c_uint32 * 3)(*grid))
        self._run(0, grid[0] * grid[1] * grid[2], ctypes.addressof(launch))


def _cell(kind: str, value: Any) -> ctypes.Array[ctypes.c_char]:
    """Returns memory that holds an argument in its natural C type."""
    if kind.startswith("!tt.ptr"):
        data = struct.pack("P", value.data_ptr() if hasattr(value, "data_ptr") else value)
    elif kind == "bf16":
        data = struct.pack("f", value)[2:]
    elif kind.startswith("i") and kind != "i1":
        data = (int(value) & (1 << int(kind[1:])) - 1).to_bytes(int(kind[1:]) // 8, "little")
    else:
        data = struct.pack(_SCALARS[kind], value)
    return ctypes.create_string_buffer(data, len(data))
