"""Loads cubins and launches them by the driver alone, through ctypes: tests of compiled kernels need no compiled launcher."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

import torch

from kernelpack.compiled import CompiledKernel
from kernelpack.simt.tensor_maps import TensorMap, tensor_map

# cuda.h
_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
_ELEMENTS = {"i8": 0, "i16": 1, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}  # CUtensorMapDataType
_FLOATS = {"f16": "e", "f32": "f", "f64": "d"}


@functools.cache
def _driver() -> ctypes.CDLL:
    torch.cuda.init()
    return ctypes.CDLL("libcuda.so.1")


def _check(result: int, doing: str) -> None:
    if result:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(result, ctypes.byref(name))
        raise RuntimeError(f"{doing} failed: {name.value.decode() if name.value else result}")


class LoadedCubin:
    """A kernel on the current device."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.kernel = kernel
        torch.zeros(1, device="cuda")  # makes the context current
        library, self.handle, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        driver = _driver()
        _check(driver.cuLibraryLoadData(ctypes.byref(library), kernel.image, None, None, 0, None, None, 0), "loading")
        _check(driver.cuLibraryGetKernel(ctypes.byref(self.handle), library, kernel.entry.encode()), "finding the kernel")
        _check(driver.cuCtxGetDevice(ctypes.byref(device)), "cuCtxGetDevice")
        attribute, shared = _FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.metadata["shared"]
        _check(
            driver.cuKernelSetAttribute(attribute, shared, self.handle, device), f"asking for {shared} bytes of shared memory"
        )

    def launch(self, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        """Starts a grid on the current stream; `values` are the run-time arguments in order."""
        cells: list[Any] = [_cell(of.type, value) for of, value in zip(self.kernel.parameters, values, strict=True)]
        known = {
            of.name: value.data_ptr() if isinstance(value, torch.Tensor) else value
            for of, value in zip(self.kernel.parameters, values, strict=True)
        }
        cells += [_encoded(tensor_map(text, known)) for text in self.kernel.descriptors]
        params = (ctypes.c_void_p * max(1, len(cells)))(*map(ctypes.addressof, cells))
        figures, stream = self.kernel.metadata, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        result = _driver().cuLaunchKernel(self.handle, *grid, figures["threads"], 1, 1, figures["shared"], stream, params, None)
        _check(result, "launching")


def _encoded(known: TensorMap) -> ctypes.Array[ctypes.c_uint64]:
    """Returns a tensor map as the hardware reads it."""
    room = (ctypes.c_uint64 * 24)()
    encoded = (ctypes.c_uint64 * 16).from_buffer(room, -ctypes.addressof(room) % 64)
    rank = len(known.sizes)
    sizes, strides = (ctypes.c_uint64 * rank)(*known.sizes), (ctypes.c_uint64 * rank)(*known.strides[1:])
    box, ones = (ctypes.c_uint32 * rank)(*known.box), (ctypes.c_uint32 * rank)(*[1] * rank)
    result = _driver().cuTensorMapEncodeTiled(
        encoded, _ELEMENTS[known.element], rank, ctypes.c_void_p(known.address), sizes, strides, box, ones, 0,
        {0: 0, 32: 1, 64: 2, 128: 3}[known.swizzle], 2, int(known.nan),
    )  # fmt: skip
    _check(result, "encoding a tensor map")
    return encoded


def _cell(kind: str, value: Any) -> ctypes.Array[ctypes.c_char]:
    """Returns memory that holds an argument in its natural C type."""
    if kind.startswith("!tt.ptr"):
        data = struct.pack("P", value.data_ptr())
    elif kind in _FLOATS:
        data = struct.pack(_FLOATS[kind], value)
    else:
        width = int(kind[1:])
        data = (int(value) & (1 << width) - 1).to_bytes(max(1, width // 8), "little")
    return ctypes.create_string_buffer(data, len(data))
