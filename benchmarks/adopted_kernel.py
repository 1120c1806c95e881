"""The kernel of benchmarks.adopted, and the programs that it runs in processes of their own: python -m benchmarks.adopted_kernel WHAT DEVICE"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from pathlib import Path

import torch

import kernelpack as kp
import kernelpack.language as tl
import kernelpack.runtime.launcher  # what launches, which all programs import

N, BLOCK = 4096, 1024


@kp.jit
def scaled_add(x, y, out, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * scale + tl.load(y + i, mask=i < n), mask=i < n)


def launch(device: str) -> None:
    """Launches once, and waits for the result."""
    x = torch.ones(N, device=device)
    out = torch.empty_like(x)
    scaled_add[(N // BLOCK,)](x, x, out, 2.0, N, BLOCK=BLOCK)
    print(float(out[-1]))


def bare(image: str) -> None:
    """Does the same with the CUDA driver alone: loads a cubin, launches it, waits."""
    x = torch.ones(N, device="cuda")
    out = torch.empty_like(x)
    cuda = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    data = Path(image).read_bytes()
    assert cuda.cuModuleLoadData(ctypes.byref(module), data) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"scaled_add") == 0
    numbers = [
        ctypes.c_uint64(x.data_ptr()),
        ctypes.c_uint64(x.data_ptr()),
        ctypes.c_uint64(out.data_ptr()),
        ctypes.c_float(2.0),
    ]
    numbers += [ctypes.c_int32(N), ctypes.c_uint64(0), ctypes.c_uint64(0)]
    pointers = (ctypes.c_void_p * len(numbers))(*(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in numbers))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    assert cuda.cuLaunchKernel(function, N // BLOCK, 1, 1, 128, 1, 1, 0, stream, pointers, None) == 0
    print(float(out[-1]))


def host(device: str) -> None:
    """Prints the seconds of host time that a launch takes."""
    x = torch.ones(N, device=device)
    out = torch.empty_like(x)
    times = []
    for _ in range(40):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            scaled_add[(N // BLOCK,)](x, x, out, 2.0, N, BLOCK=BLOCK)
        times.append((time.perf_counter() - start) / 200)
    print(statistics.median(times))


if __name__ == "__main__":
    {"launch": launch, "bare": bare, "host": host}[sys.argv[1]](sys.argv[2])
