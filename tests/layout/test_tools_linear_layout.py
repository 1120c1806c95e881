"""kernelpack.tools.LinearLayout: layouts by name and bases, as Triton's host code writes them."""

from __future__ import annotations

import pytest

from kernelpack.tools import LinearLayout


def test_layouts_are_applied_and_multiplied() -> None:
    swapped = LinearLayout.from_bases([("row", [[0, 1], [0, 2]]), ("column", [[1, 0], [2, 0]])], ["x", "y"])
    assert swapped.apply({"row": 3, "column": 2}) == {"x": 2, "y": 3}
    assert swapped.out_dims == [("x", 4), ("y", 4)]
    assert swapped.is_invertible()
    both = LinearLayout.identity_1d(4, "i", "o") * LinearLayout.strided_1d(2, 2, "i", "o")
    assert [both.apply({"i": i})["o"] for i in range(8)] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert not both.is_surjective()
    assert both.is_injective()
    zeros = LinearLayout.zeros_1d(8, "i", "o", outDimSize=4)
    assert {zeros.apply({"i": i})["o"] for i in range(8)} == {0}
    with pytest.raises(ValueError, match="the inputs are i, got j"):
        zeros.apply({"j": 1})
    with pytest.raises(ValueError, match="does not reach all of its outputs"):
        LinearLayout.from_bases([("i", [[2]])], ["o"])
    with pytest.raises(ValueError, match="6 is not a power of two"):
        LinearLayout.identity_1d(6, "i", "o")


def test_layouts_are_inverted() -> None:
    turned = LinearLayout.from_bases([("i", [[2], [1]])], ["o"])
    assert [turned.invert().apply({"o": o})["i"] for o in range(4)] == [0, 2, 1, 3]
    assert turned.compose(LinearLayout.identity_1d(4, "o", "p")).apply({"i": 1}) == {"p": 2}
    assert turned.invert_and_compose(LinearLayout.identity_1d(4, "p", "o")).apply({"i": 1}) == {"p": 2}


def test_the_matrix_of_a_layout() -> None:
    assert LinearLayout.strided_1d(4, 2, "i", "o").get_matrix_view() == [[0, 0], [1, 0], [0, 1]]
    assert str(LinearLayout.identity_1d(2, "i", "o")) == "[('i', [[1]])] -> [('o', 2)]"
