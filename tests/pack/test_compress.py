"""Images of a library are small where they are alike, and come back as they were."""

from __future__ import annotations

import sys
from random import Random

import pytest
import zstandard

from kernelpack.errors import BuildError
from kernelpack.pack.compress import Frame, compress, most_similar


def unpacked(frames: list[Frame], number: int) -> bytes:
    frame = frames[number]
    prefix = None if frame.like is None else unpacked(frames, frame.like)
    like = None if prefix is None else zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdDecompressor(dict_data=like).decompress(frame.data)


def chain(count: int, changed: int) -> list[bytes]:
    """Images each of which differs from the one before in some of its 2,000 instructions."""
    random = Random(0)
    units = [random.randbytes(16) for _ in range(2000)]
    images = []
    for _ in range(count):
        for place in random.sample(range(2000), changed):
            units[place] = random.randbytes(16)
        images.append(b"".join(units))
    return images


def test_images_come_back() -> None:
    images = [*chain(9, 100), b"", b"\0" * 50_000, b"short"]
    frames = compress(images)
    assert [unpacked(frames, number) for number in range(len(images))] == images
    assert [frame.size for frame in frames] == list(map(len, images))


def test_an_image_costs_what_is_new_in_it() -> None:
    first, *others = compress(chain(8, 100))
    assert len(first.data) > 31_000
    assert all(len(frame.data) < 4 * 1600 + 500 for frame in others)
    assert compress(chain(8, 100)) == [first, *others]


def test_few_images_are_unpacked_for_one() -> None:
    likes = most_similar(chain(30, 100))
    assert likes[:5] == [None, 0, 1, 2, 3]

    def depth(number: int) -> int:
        like = likes[number]
        return 0 if like is None else 1 + depth(like)

    assert max(map(depth, range(30))) == 4


def test_strangers_stand_alone() -> None:
    assert most_similar([*chain(1, 0), Random(1).randbytes(32_000)]) == [None, None]
    assert most_similar([]) == []


def test_what_compresses_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BuildError, match=r"zstandard is not installed\n  to fix: pip install 'kernelpack\[build\]'"):
        compress([b"image"])
