"""vLLM's C++ kernels for GPUs as peers: FlashAttention 3 and its own for rows. torch loads their libraries without vLLM.

`python -m benchmarks.vllm_libraries` gets the libraries, and no more of PyPI's wheel, into build/vllm_libraries (260 MB).
It needs remotezip (`pip install -r requirements-peers.txt`).
"""

from __future__ import annotations

import json
import urllib.request
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FLASH_ATTENTION = "FlashAttention 3"
"""The peer that `flash_attention` is."""
FOLDER = Path("build/vllm_libraries")
_VERSION = "0.33.0"
_LIBRARIES = {
    "_vllm_fa3_C": "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so",
    "_C": "vllm/_C_stable_libtorch.abi3.so",
}
"""The namespace of torch.ops that a library registers, and its place in the wheel."""


def peers(namespace: str, name: str) -> tuple[str, ...]:
    """Returns the name of a peer on GPUs, or nothing where its library cannot be had."""
    return () if library(namespace) is None else (name,)


@cache
def library(namespace: str) -> Any:
    """Returns the namespace of torch.ops, its library loaded; None where the library is not there or torch cannot load it."""
    path = FOLDER / Path(_LIBRARIES[namespace]).name
    if not path.is_file():
        return None
    try:
        torch.ops.load_library(str(path.resolve()))
    except OSError as error:
        print(f"{path} cannot be loaded, its peers are left out: {error}")
        return None
    return getattr(torch.ops, namespace)


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    max_query_length: int,
    max_key_length: int,
    *,
    causal: bool,
    key_starts: Tensor | None = None,
    key_lengths: Tensor | None = None,
    block_table: Tensor | None = None,
    schedule: Tensor | None = None,
) -> Tensor:
    """FlashAttention 3 of packed queries [tokens, heads, d], on packed keys (with `key_starts`) or on blocks of a cache (with the
    other two). `starts` and `key_starts` are int32 [sequences + 1], `key_lengths` int32 [sequences]; `schedule` is what
    `flash_schedule` returns."""
    lengths = (starts, key_starts, None, None, key_lengths, max_query_length, max_key_length, block_table)
    unused = (None,) * 8  # rows of the cache, paddings, rotation, scales of 8-bit numbers
    scale, window, softcap, interleaved, splits = query.shape[-1] ** -0.5, (-1, -1), 0.0, True, 0
    rest = (schedule, splits, None, 0, None, 1, 0, None)
    packed: Tensor = library("_vllm_fa3_C").fwd(
        query, key, value, None, None, None, None, *lengths, *unused, scale, causal, *window, softcap, interleaved, *rest
    )[0]
    return packed


def flash_schedule(
    query: Tensor, key: Tensor, starts: Tensor, key_lengths: Tensor, max_query_length: int, max_key_length: int
) -> Tensor:
    """Returns what vLLM computes once a step, before its layers call `flash_attention` on blocks of a cache."""
    heads, size = query.shape[1:]
    sizes = (len(key_lengths), max_query_length, max_key_length, heads, key.shape[2], size, size, query.dtype)
    rest = (None, key.shape[1], 0, True, -1, -1, False, 0, None, 0)
    schedule: Tensor = library("_vllm_fa3_C").get_scheduler_metadata(*sizes, key_lengths, starts, None, None, None, *rest)
    return schedule


def fetch(folder: Path) -> None:
    """Writes the libraries to `folder`: it asks PyPI's server for those parts of the wheel alone."""
    index = urllib.request.Request("https://pypi.org/simple/vllm/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(index) as answer:
        files = {file["filename"]: file["url"] for file in json.load(answer)["files"]}
    url = next(url for name, url in files.items() if name.startswith(f"vllm-{_VERSION}-") and name.endswith("x86_64.whl"))
    folder.mkdir(parents=True, exist_ok=True)
    with import_module("remotezip").RemoteZip(url) as wheel:
        for place in _LIBRARIES.values():
            path = folder / Path(place).name
            path.write_bytes(wheel.read(place))
            print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    fetch(FOLDER)
