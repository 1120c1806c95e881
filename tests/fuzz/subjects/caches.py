"""Files of caches: compiled kernels, notes of groups, times of searches, locks, and kernels of other processes to preload.

The first line of an input says which reader the rest is for.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from random import Random

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.backends.cuda.device.open import open_image
from kernelpack.compiled import CompiledKernel
from kernelpack.files import lock
from kernelpack.files.cache import CacheFolder
from kernelpack.options import Options
from kernelpack.runtime.autotune import Autotuner
from kernelpack.runtime.cache import FileCacheManager
from kernelpack.runtime.kernel_cache import KernelCache
from kernelpack.runtime.kernel_file import kernel_bytes
from kernelpack.runtime.kernel_view import KernelView
from kernelpack.runtime.loaded import LoadedKernel
from tests.fuzz.mutate import json_mutated, mutated
from tests.fuzz.subject import Subject


@kp.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


CONFIGS = [kp.Config({"BLOCK": 32}), kp.Config({"BLOCK": 64}, num_warps=2)]


def _compiled(target: str) -> CompiledKernel:
    source = kp.ASTSource(double, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 64}, {})
    kernel: CompiledKernel = kp.compile(source, target=target).kernel
    return kernel


def _seeds() -> list[bytes]:
    kernels = [_compiled("cpu:x86-64-v3"), _compiled("cuda:sm_90a")]
    mapped = CompiledKernel(
        "double", kernels[1].target, kernels[1].options, kernels[1].parameters, kernels[1].facts, "cubin", b"image",
        kernels[1].metadata, {"ptx": "text", "cubin": b"image"}, "ab" * 32,
        ("f32; base: x; sizes: n; strides: ; box: 64; swizzle: 0; padding: zero",),
    )  # fmt: skip
    timings = {str(config): [0.1, 0.2, 0.3] for config in CONFIGS}
    return [
        *(b"kernel\n" + kernel_bytes(kernel) for kernel in (mapped, *kernels)),
        b"timings\n" + json.dumps(timings).encode(),
        b"timings\n" + json.dumps(dict.fromkeys(timings, 0.25)).encode(),
        b"group\n" + json.dumps({"child_paths": {"a": "/x/a", "b": "/x/b"}}).encode(),
        b"lock\n" + lock.lock_text({"autotune/a.json": "ab" * 32, "k/kernel.bin": "cd" * 32}).encode(),
    ]


def _kernel(data: bytes, folder: Path) -> None:
    """What a launch makes of a kernel's file, up to its code."""
    cache = KernelCache.__new__(KernelCache)
    cache._key, cache.options = "key", Options()
    cache._manager = FileCacheManager("key")
    cache._manager.put(data, "kernel.bin")
    kernel = cache.load()
    if kernel is None:
        return
    view = KernelView(kernel)
    str(view.metadata), view.asm, view.n_regs, view.n_spills
    if kernel.target.backend == "cuda":
        LoadedKernel(kernel, open_image(kernel))


def _timings(data: bytes, folder: Path) -> None:
    name = "autotune/x.json"
    CacheFolder(folder).write(name, data)
    tuner = Autotuner(double, double.arg_names, CONFIGS, [])
    assert tuner._remembered(name, CONFIGS) in (None, *CONFIGS)


def _group(data: bytes, folder: Path) -> None:
    manager = FileCacheManager("key")
    for name in "ab":
        manager.put(b"x", name)
    manager.put(data, "__grp__both")
    manager.get_group("both")


def _lock(data: bytes, folder: Path) -> None:
    lock.parse_lock(data.decode(errors="replace"), "cache.lock")


_READERS = {b"kernel": _kernel, b"timings": _timings, b"group": _group, b"lock": _lock}


def _run(data: bytes, folder: Path) -> None:
    reader, _, rest = data.partition(b"\n")
    with knobs.cache.scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        knobs.cache.dir = str(folder)
        _READERS.get(reader, _kernel)(rest, folder)


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    reader, _, rest = data.partition(b"\n")
    parts = rest.split(b"\n", 3)
    if reader == b"kernel" and len(parts) == 4 and random.random() < 0.8:
        rest = b"\n".join([*parts[:2], json_mutated(parts[2], random), parts[3]])
    elif reader != b"lock" and random.random() < 0.7:
        rest = json_mutated(rest, random)
    else:
        rest = mutated(rest, random, [other.partition(b"\n")[2] for other in others[-20:]])
    return reader + b"\n" + rest


def _mend(data: bytes) -> bytes:
    """Makes the hash of a kernel's file fit."""
    parts = data.split(b"\n", 3)
    if parts[0] != b"kernel" or len(parts) < 4:
        return data
    return b"\n".join([*parts[:2], hashlib.sha256(parts[3]).hexdigest().encode(), parts[3]])


SUBJECT = Subject(_seeds, _run, mend=_mend, mutate=_mutate)
