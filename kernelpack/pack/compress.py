"""Compresses the images of a library: each as a frame of zstd, in terms of the most similar image before it.

Variants of an op share most of their code. One frame for all of them would be 13 % smaller, but a use of one would unpack megabytes where
nothing was unpacked ahead; here it unpacks one image and those that it is written in terms of.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from kernelpack.errors import BuildError

_LEVEL = 19
_DEEPEST = 4
"""How many images are unpacked at most before one that is in terms of them."""
_UNIT = 16
"""Bytes of an instruction of GPUs; images are alike where they share many."""
_LEAST = 0.1
"""The part of an image's units that another must have, so that it pays to unpack that."""

_SKETCH, _CANDIDATES = 64, 4


@dataclass(frozen=True)
class Frame:
    """An image as it is stored. `like` is the number of the image that is its prefix."""

    data: bytes
    size: int
    like: int | None


def zstd_version() -> str:
    """Returns which zstd compresses, "" where there is none: others may write other bytes."""
    try:
        import zstandard  # late: see compress
    except ImportError:
        return ""
    return ".".join(map(str, zstandard.ZSTD_VERSION))


def compress(images: Sequence[bytes], jobs: int | None = None) -> list[Frame]:
    """Returns the frames of images, in their order; an image is in terms of earlier ones alone. Raises BuildError without zstandard."""
    try:
        import zstandard  # late: only libraries with such images need it
    except ImportError:
        raise BuildError("the package zstandard is not installed", cure="pip install 'kernelpack[build]'") from None

    likes = most_similar(images)

    def frame(number: int) -> Frame:
        image, like = images[number], likes[number]
        prefix = None if like is None else zstandard.ZstdCompressionDict(images[like], dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=prefix, write_checksum=True)
        return Frame(compressor.compress(image), len(image), like)

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        return list(pool.map(frame, range(len(images))))


def most_similar(images: Sequence[bytes]) -> list[int | None]:
    """Returns for each image the number of the earlier one that shares the most units with it, None where none shares enough.

    Candidates are those whose sketches are most alike: the least hashes of an image stand for all (Broder, 1997).
    """
    units = [_units(image) for image in images]
    sketches = [frozenset(own[:_SKETCH].tolist()) for own in units]
    likes: list[int | None] = []
    depths: list[int] = []
    for number, own in enumerate(units):
        candidates = ((len(sketches[number] & sketches[other]), -other) for other in range(number) if depths[other] < _DEEPEST)
        best = (0, 0)
        for _, other in heapq.nlargest(_CANDIDATES, candidates):
            best = max(best, (len(np.intersect1d(own, units[-other], assume_unique=True)), other))
        shared, like = best
        likes.append(-like if shared > _LEAST * len(own) else None)
        depths.append(0 if likes[-1] is None else depths[-like] + 1)
    return likes


def _units(image: bytes) -> np.ndarray:
    """Returns the different hashes of an image's units, in order."""
    words = np.frombuffer(image[: len(image) // _UNIT * _UNIT], np.uint64).reshape(-1, _UNIT // 8)
    mixed = (words[:, 0] ^ (words[:, 1] >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + words[:, 1]
    return np.unique((mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93))
