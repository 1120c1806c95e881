"""The form in which a compiled kernel is kept: it is read as it was written, and what is no kernel is refused with its line."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.compiled import CompiledKernel
from kernelpack.errors import PackError
from kernelpack.runtime.kernel_file import kernel_bytes, parse_kernel


@kp.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


def compiled(target: str) -> CompiledKernel:
    types = {"x": "*fp32", "out": "*fp32", "n": "i32"}
    source = kp.ASTSource(double, types, {"BLOCK": 64}, {(0,): [["tt.divisibility", 16]]})
    return kp.compile(source, target=target).kernel


@pytest.mark.parametrize("target", ["cpu:native", "cuda:sm_90a"])
def test_a_kernel_is_read_as_it_was_written(target: str) -> None:
    kernel = compiled(target)
    assert len(kernel.stages) > 2
    assert parse_kernel(kernel_bytes(kernel)) == kernel
    mapped = replace(kernel, metadata={**kernel.metadata, "ratio": 0.1, "waits": True}, descriptors=("a", "b"))
    assert parse_kernel(kernel_bytes(mapped)) == mapped
    for odd in ({1: 2}, {"list": [1]}, {"object": object()}, {"nan": float("nan")}):
        with pytest.raises(PackError, match="cannot be kept in a file"):
            kernel_bytes(replace(kernel, metadata=odd))


def described(data: bytes, **changes: Any) -> bytes:
    """Returns a kernel's file with another description, and the digest of that."""
    first, _, header, parts = data.split(b"\n", 3)
    body = json.dumps({**json.loads(header), **changes}).encode() + b"\n" + parts
    return b"\n".join([first, hashlib.sha256(body).hexdigest().encode(), body])


def test_what_describes_no_kernel_is_refused() -> None:
    data = kernel_bytes(compiled("cpu:native"))
    size = json.loads(data.split(b"\n", 3)[2])["image bytes"]
    assert parse_kernel(described(data)) == parse_kernel(data)
    wrong: list[dict[str, Any]] = [
        *({"entry": value} for value in (None, 1, [])),
        *({"target": value} for value in (None, "nothing", 3)),
        *({"options": value} for value in (None, [], {"unknown": 1}, {"num_warps": "4"}, {"num_warps": []})),
        *({"parameters": value} for value in (None, 3, [3], [["x"]], [["x", 3]], "xy")),
        *({"facts": value} for value in (None, [["x", "tt.divisibility", "16"]], [[]])),
        *({"image bytes": value} for value in (None, -1, 1.5, size + 1, size - 1, 10**30, "9")),
        *({"stages": value} for value in (None, [["ttir", "text", -1]], [["ttir", "text", 10**9]], [[1, "image", 0]], [[]])),
        *({"metadata": value} for value in ([1], {"shared": []}, {"num_warps": 2**31}, {"program_ns": "1"})),
        *({"descriptors": value} for value in (None, 3, [3], ["f32; base: nothing"])),
        {"code sha256": 3},
    ]
    for changes in wrong:
        with pytest.raises(PackError, match=r"^kernel:3: this describes no kernel: "):
            parse_kernel(described(data, **changes))
    deep = b"[" * 100_000
    for header in (b"[]", b"3", b"{}", b"", deep, b"\xff", b'{"entry": ' + b"9" * 5000 + b"}"):
        body = header + b"\n"
        with pytest.raises(PackError, match=r"^kernel:3: "):
            parse_kernel(b"\n".join([data.split(b"\n")[0], hashlib.sha256(body).hexdigest().encode(), body]))
    for end in (0, 10, len(data) // 2, len(data) - 1):
        with pytest.raises(PackError, match=r"^kernel:[12]: "):
            parse_kernel(data[:end])
    with pytest.raises(PackError, match=r"^kernel:1: .* or one of another version"):
        parse_kernel(data.replace(b"version 1", b"version 2", 1))
