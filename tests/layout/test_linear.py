"""The algebra of linear layouts obeys its laws, for layouts drawn at random."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpack.layout.linear import LinearLayout

INS = ("register", "lane", "warp")


@st.composite
def bijections(draw: st.DrawFn, shape: tuple[int, ...] | None = None) -> LinearLayout:
    """A random invertible map from three input dimensions to two output dimensions, of a given shape or any."""
    bits = draw(st.integers(0, 8)) if shape is None else sum(size.bit_length() - 1 for size in shape)
    split = draw(st.integers(0, bits)) if shape is None else shape[0].bit_length() - 1
    first = draw(st.integers(0, bits))
    second = draw(st.integers(0, bits - first))
    sizes = (first, second, bits - first - second)
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    columns = [1 << bit for bit in range(bits)]
    for _ in range(3 * bits):  # row operations keep it invertible
        i, j = rng.randrange(bits), rng.randrange(bits)
        if i != j:
            columns = [column ^ ((column >> i & 1) << j) for column in columns]
    rng.shuffle(columns)
    images = iter([(column & (1 << split) - 1, column >> split) for column in columns])
    bases = {name: [next(images) for _ in range(size)] for name, size in zip(INS, sizes, strict=True)}
    return LinearLayout.make(bases, {"dim0": 1 << split, "dim1": 1 << bits - split})


def places(layout: LinearLayout) -> list[dict[str, int]]:
    ranges = [range(layout.in_size(name)) for name in layout.in_names]
    return [dict(zip(layout.in_names, place, strict=True)) for place in itertools.product(*ranges)]


@settings(max_examples=60, deadline=None)
@given(bijections())
def test_inverse_leads_back(layout: LinearLayout) -> None:
    inverse = layout.invert()
    for place in places(layout):
        image = dict(zip(layout.out_names, layout(**place), strict=True))
        assert inverse(**image) == tuple(place.values())
        assert layout.preimage(tuple(image.values())) == place


@settings(max_examples=60, deadline=None)
@given(bijections().flatmap(lambda one: st.tuples(st.just(one), bijections(one.shape))))
def test_composition_applies_one_after_the_other(pair: tuple[LinearLayout, LinearLayout]) -> None:
    one, other = pair
    between = one.invert_and_compose(other)  # where `other` keeps what `one` has
    for place in places(one):
        there = dict(zip(between.out_names, between(**place), strict=True))
        assert other(**there) == one(**place)
        assert between.compose(other)(**place) == one(**place)


@settings(max_examples=60, deadline=None)
@given(bijections(), bijections())
def test_a_factor_divides_its_product(tile: LinearLayout, rest: LinearLayout) -> None:
    product = tile * rest
    assert product.divide(tile) == rest
    low, high = places(tile), places(rest)
    for a, b in zip(low[:8], high[-8:], strict=False):
        both = {name: a[name] + (b[name] << len(tile.bases(name))) for name in INS}
        scaled = tuple(x + y * size for x, y, size in zip(tile(**a), rest(**b), tile.shape, strict=True))
        assert product(**both) == scaled


def test_what_does_not_fit_does_not_divide() -> None:
    layout = LinearLayout.identity(4, "register", "dim0") * LinearLayout.identity(4, "lane", "dim0")
    assert layout.divide(LinearLayout.identity(4, "lane", "dim0")) is None
    assert layout.divide(LinearLayout.identity(8, "register", "dim0")) is None


def test_copies_and_gaps_show() -> None:
    copies = LinearLayout.identity(2, "register", "dim0") * LinearLayout.zeros(2, "lane", "dim0")
    assert copies.is_surjective
    assert not copies.is_injective
    assert copies.free_bits("lane") == 1
    gap = LinearLayout.make({"register": [(1,)]}, {"dim0": 4})
    assert gap.is_injective
    assert not gap.is_surjective
    assert gap.preimage((2,)) is None


def test_contiguity_counts_neighbours() -> None:
    layout = LinearLayout.make({"register": [(0, 1), (0, 2), (1, 0)]}, {"dim0": 2, "dim1": 8})
    assert layout.contiguity("register", "dim1") == 4
    assert layout.contiguity("register", "dim0") == 1


def test_sizes_are_powers_of_two() -> None:
    with pytest.raises(ValueError, match="3 is not a power of two"):
        LinearLayout.identity(3, "register", "dim0")
    with pytest.raises(ValueError, match="lies outside"):
        LinearLayout.make({"register": [(4,)]}, {"dim0": 4})
