"""Attention needs memory for its result alone: masks that broadcast and shared key heads are never expanded, nothing is copied.

Large results of all ops ask for huge pages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

CASES = {
    "mask for all heads and batches": ((4, 8, 256, 64), 8, (256, 300)),
    "mask by batch, for all queries": ((4, 8, 256, 64), 8, (4, 1, 1, 300)),
    "mask of one column": ((4, 8, 256, 64), 8, (1, 1, 256, 1)),
    "shared key heads": ((4, 16, 128, 64), 1, None),
    "shared key heads and a mask": ((4, 16, 128, 64), 2, (1, 16, 1, 300)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(CASES))
def test_attention_allocates_its_result_alone(name: str, dtype: torch.dtype) -> None:
    """Everything that torch's allocator gives during the call: one tensor, of the result's size."""
    query_shape, kv_heads, mask_shape = CASES[name]
    query = torch.randn(query_shape, dtype=dtype).transpose(1, 2).contiguous().transpose(1, 2)
    key, value = (torch.randn(query_shape[0], kv_heads, 300, 64, dtype=dtype) for _ in range(2))
    mask = None if mask_shape is None else torch.randn(mask_shape, dtype=dtype)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        out = torch.ops.kernelpack.mha(query, key, value, mask, enable_gqa=True)
    given = [event.self_cpu_memory_usage for event in measured.events() if event.self_cpu_memory_usage > 0]
    assert sum(given) == out.numel() * out.element_size()


LONG = """
import resource, sys, torch
torch.ops.load_library(sys.argv[1])
query = torch.randn(1, 8, 4096, 64)
key = torch.randn(1, 1, 4096, 64)
mask = torch.randn(4096, 1).expand(4096, 4096)
torch.ops.kernelpack.mha(query[:, :, :64], key, key, mask[:64], enable_gqa=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
torch.ops.kernelpack.mha(query, key, key, mask, enable_gqa=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_peak_memory_of_long_attention_is_that_of_its_result(library_file: str) -> None:
    """What the process really takes, kernels' own buffers included: 8 MB of result, where scores alone would be 512 MB."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", LONG, library_file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 24_000, f"{done.stdout} KB"


HUGE = """
import sys, torch
torch.ops.load_library(sys.argv[1])
out = torch.ops.kernelpack.silu_mul(torch.ones(4096, 4096), torch.ones(4096, 4096))
middle = out.data_ptr() + out.nbytes // 2
inside = False
for line in open("/proc/self/smaps"):
    name, *rest = line.split()
    if "-" in name and not name.endswith(":"):
        begin, end = (int(address, 16) for address in name.split("-"))
        inside = begin <= middle < end
    if inside and name == "VmFlags:":
        print("hg" in rest)
"""


def test_large_results_ask_for_huge_pages(library_file: str) -> None:
    """64 MiB of fresh memory are 16,384 page faults without, which take longer than the rows."""
    done = subprocess.run([sys.executable, "-c", HUGE, library_file], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True"], done.stderr
