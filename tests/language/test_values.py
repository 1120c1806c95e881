"""constexpr outside kernels."""

from __future__ import annotations

import kernelpack.language as tl


def test_constexpr_computes_like_its_value() -> None:
    four = tl.constexpr(4)
    assert (four + 1).value == 5
    assert (9 // four).value == 2
    assert (-four).value == -4
    assert (four << 1 | 1).value == 9
    assert (four == 4).value is True
    assert (four != tl.constexpr(4)).value is False
    assert (four < 5).value is True
    assert bool(four > 5) is False
    assert tl.constexpr(tl.constexpr(5)) == tl.constexpr(5)
    assert range(8)[four] == 4
    assert tl.constexpr((1, 2))[tl.constexpr(1)].value == 2
    assert repr(four) == "constexpr[4]"
    assert len({four, tl.constexpr(4)}) == 1
