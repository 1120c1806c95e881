"""LinearLayout: a linear map over F2 between named index spaces, the only representation of a layout.

A layout maps places in hardware (`register`, `lane`, `warp`, `block`, or a shared-memory `offset`) to coordinates of a tensor
(`dim0`, `dim1`, ...). It is given by its value at every power of two (the basis); the value anywhere else is the xor of the
bases of the set bits. All sizes are therefore powers of two. Products, inverses and quotients of layouts answer every question
that code generation asks: which accesses vectorise, what a conversion must move, whether an instruction's tile fits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Basis = tuple[int, ...]
"""One image: a coordinate for every output dimension."""


def log2(size: int) -> int:
    """Returns the binary logarithm. Raises ValueError for anything but a power of two."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"{size} is not a power of two")
    return size.bit_length() - 1


def xor(a: Basis, b: Basis) -> Basis:
    return tuple(x ^ y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class LinearLayout:
    """A linear map. `ins` holds every input dimension with its bases, `outs` every output dimension with its size.

    The first basis of a dimension belongs to its lowest bit. Build layouts with `make`, `identity`, `zeros` and `*`.
    """

    ins: tuple[tuple[str, tuple[Basis, ...]], ...]
    outs: tuple[tuple[str, int], ...]

    # ---- construction ----

    @staticmethod
    def make(bases: Mapping[str, Iterable[Sequence[int]]], outs: Mapping[str, int]) -> LinearLayout:
        """Returns the layout with the given bases. Raises ValueError where a basis lies outside the output."""
        layout = LinearLayout(
            tuple((name, tuple(tuple(basis) for basis in entries)) for name, entries in bases.items()), tuple(outs.items())
        )
        for size in outs.values():
            log2(size)
        for name, entries in layout.ins:
            for basis in entries:
                if len(basis) != len(outs) or any(not 0 <= x < size for x, size in zip(basis, outs.values(), strict=True)):
                    raise ValueError(f"basis {basis} of {name} lies outside {dict(outs)}")
        return layout

    @staticmethod
    def identity(size: int, source: str, target: str) -> LinearLayout:
        """Returns the layout that maps `source` to `target` one to one."""
        return LinearLayout(((source, tuple((1 << bit,) for bit in range(log2(size)))),), ((target, size),))

    @staticmethod
    def zeros(size: int, source: str, target: str) -> LinearLayout:
        """Returns the layout that maps all of `source` to 0: every place holds the same element."""
        return LinearLayout(((source, ((0,),) * log2(size)),), ((target, 1),))

    # ---- what it is made of ----

    @functools.cached_property
    def in_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.ins)

    @functools.cached_property
    def out_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.outs)

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the output dimensions."""
        return tuple(size for _, size in self.outs)

    def bases(self, name: str) -> tuple[Basis, ...]:
        """Returns the bases of an input dimension; none for a dimension that the layout does not have."""
        return next((entries for known, entries in self.ins if known == name), ())

    def in_size(self, name: str) -> int:
        return 1 << len(self.bases(name))

    def __call__(self, **place: int) -> Basis:
        """Returns the image of a place; input dimensions left out are 0."""
        result = (0,) * len(self.outs)
        for name, entries in self.ins:
            index = place.get(name, 0)
            for bit, basis in enumerate(entries):
                if index >> bit & 1:
                    result = xor(result, basis)
        return result

    def images(self, name: str) -> list[Basis]:
        """Returns the image of every index of one input dimension, the others at 0, in order."""
        found = [(0,) * len(self.outs)]
        for basis in self.bases(name):
            found += [xor(image, basis) for image in found]
        return found

    # ---- shape of the dimensions ----

    def with_ins(self, names: Sequence[str]) -> LinearLayout:
        """Returns the same map with its inputs in another order; unknown names become dimensions of size 1, others go."""
        return LinearLayout(tuple((name, self.bases(name)) for name in names), self.outs)

    def with_bases(self, name: str, entries: Iterable[Basis]) -> LinearLayout:
        """Returns the layout with other bases for one input dimension."""
        return LinearLayout(tuple((known, tuple(entries) if known == name else old) for known, old in self.ins), self.outs)

    def with_outs(self, names: Sequence[str]) -> LinearLayout:
        """Returns the same map with its outputs in another order, or without some of them."""
        if tuple(names) == self.out_names:
            return self  # which may know its elimination
        picks = [self.out_names.index(name) for name in names]
        return LinearLayout(
            tuple((name, tuple(tuple(basis[pick] for pick in picks) for basis in entries)) for name, entries in self.ins),
            tuple(self.outs[pick] for pick in picks),
        )

    def rename_outs(self, names: Sequence[str]) -> LinearLayout:
        return LinearLayout(self.ins, tuple((name, size) for name, (_, size) in zip(names, self.outs, strict=True)))

    def reshape_outs(self, outs: Sequence[tuple[str, int]]) -> LinearLayout:
        """Returns the map to the same elements, numbered in row-major order, under other dimensions."""
        strides = [1] * len(self.shape)
        for axis in reversed(range(len(self.shape) - 1)):
            strides[axis] = strides[axis + 1] * self.shape[axis + 1]
        if functools.reduce(lambda a, b: a * b, self.shape, 1) != functools.reduce(lambda a, b: a * b[1], outs, 1):
            raise ValueError(f"cannot reshape {dict(self.outs)} to {dict(outs)}")

        def convert(basis: Basis) -> Basis:
            flat = sum(x * stride for x, stride in zip(basis, strides, strict=True))
            coordinates = []
            for _, size in reversed(outs):
                coordinates.append(flat % size)
                flat //= size
            return tuple(reversed(coordinates))

        return LinearLayout(tuple((name, tuple(map(convert, entries))) for name, entries in self.ins), tuple(outs))

    # ---- algebra ----

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """Returns the direct sum: `self` takes the low bits of dimensions that both have, `other` the bits above them."""
        outs = dict.fromkeys((*self.out_names, *other.out_names))
        ins = dict.fromkeys((*self.in_names, *other.in_names))
        low, high = dict(self.outs), dict(other.outs)

        def lift(layout: LinearLayout, name: str, shift: bool) -> tuple[Basis, ...]:
            lifted = []
            for basis in layout.bases(name):
                named = dict(zip(layout.out_names, basis, strict=True))
                lifted.append(tuple(named.get(out, 0) * (low.get(out, 1) if shift else 1) for out in outs))
            return tuple(lifted)

        return LinearLayout(
            tuple((name, lift(self, name, False) + lift(other, name, True)) for name in ins),
            tuple((out, low.get(out, 1) * high.get(out, 1)) for out in outs),
        )

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """Returns x -> outer(self(x)); the outputs of `self` are the inputs of `outer`, by name."""
        return LinearLayout(
            tuple(
                (name, tuple(outer(**dict(zip(self.out_names, basis, strict=True))) for basis in entries))
                for name, entries in self.ins
            ),
            outer.outs,
        )

    @functools.cached_property
    def _shifts(self) -> tuple[int, ...]:
        """Where each output dimension starts in a packed image; the first dimension has the lowest bits."""
        shifts, at = [], 0
        for _, size in self.outs:
            shifts.append(at)
            at += log2(size)
        return tuple(shifts)

    def pack(self, image: Sequence[int]) -> int:
        """Returns an image as one integer: the bits of all output dimensions, the first dimension lowest."""
        return sum(x << shift for x, shift in zip(image, self._shifts, strict=True))

    @functools.cached_property
    def _elimination(self) -> tuple[dict[int, tuple[int, int]], tuple[int, ...]]:
        """Gauss-Jordan over the columns: {pivot bit: (vector, which columns make it)}, and the kernel as column masks.

        A column that depends on earlier ones goes to the kernel, so preimages use the lowest columns that do.
        """
        pivots: dict[int, tuple[int, int]] = {}
        kernel: list[int] = []
        columns = [self.pack(basis) for _, entries in self.ins for basis in entries]
        for index, column in enumerate(columns):
            vector, mask = column, 1 << index
            for bit, (pivot, made_of) in pivots.items():
                if vector >> bit & 1:
                    vector, mask = vector ^ pivot, mask ^ made_of
            if not vector:
                kernel.append(mask)
                continue
            top = vector.bit_length() - 1
            for bit, (pivot, made_of) in list(pivots.items()):
                if pivot >> top & 1:
                    pivots[bit] = pivot ^ vector, made_of ^ mask
            pivots[top] = vector, mask
        return pivots, tuple(kernel)

    @property
    def is_injective(self) -> bool:
        """Whether no two places hold the same element."""
        return not self._elimination[1]

    @property
    def is_surjective(self) -> bool:
        """Whether every element is held somewhere."""
        return len(self._elimination[0]) == sum(log2(size) for size in self.shape)

    def preimage(self, image: Sequence[int]) -> dict[str, int] | None:
        """Returns a place that holds an element, or None where no place does."""
        wanted = self.pack(image)
        mask, reached = 0, 0
        for bit, (pivot, made_of) in self._elimination[0].items():
            if wanted >> bit & 1:
                mask, reached = mask ^ made_of, reached ^ pivot
        if reached != wanted:
            return None
        place = {}
        for name, entries in self.ins:
            place[name] = mask & ((1 << len(entries)) - 1)
            mask >>= len(entries)
        return place

    def invert_and_compose(self, outer: LinearLayout) -> LinearLayout:
        """Returns x -> y with outer(y) = self(x): where `outer` keeps what `self` has at x.

        Raises ValueError where `outer` does not hold all that `self` has.
        """
        outer = outer.with_outs(self.out_names)

        def find(basis: Basis) -> Basis:
            place = outer.preimage(basis)
            if place is None:
                raise ValueError(f"element {basis} is not covered by {outer}")
            return tuple(place.values())

        return LinearLayout(
            tuple((name, tuple(map(find, entries))) for name, entries in self.ins),
            tuple((name, outer.in_size(name)) for name in outer.in_names),
        )

    def invert(self) -> LinearLayout:
        """Returns the inverse of a surjective map: for every element, a place that holds it."""
        identity = LinearLayout((), ())
        for name, size in self.outs:
            identity = identity * LinearLayout.identity(size, name, name)
        return identity.invert_and_compose(self)

    def divide(self, tile: LinearLayout) -> LinearLayout | None:
        """Returns the layout q with `self == tile * q` (dimensions in order of `self`), or None: does the tile fit?"""
        sizes = dict(tile.outs)
        quotient = []
        for name, entries in self.ins:
            low = [
                tuple(dict(zip(tile.out_names, basis, strict=True)).get(out, 0) for out in self.out_names)
                for basis in tile.bases(name)
            ]
            if list(entries[: len(low)]) != low:
                return None
            rest = entries[len(low) :]
            if any(x % sizes.get(out, 1) for basis in rest for x, out in zip(basis, self.out_names, strict=True)):
                return None
            quotient.append(
                (name, tuple(tuple(x // sizes.get(out, 1) for x, out in zip(b, self.out_names, strict=True)) for b in rest))
            )
        if any(name not in self.in_names and entries for name, entries in tile.ins):
            return None
        return LinearLayout(tuple(quotient), tuple((out, size // sizes.get(out, 1)) for out, size in self.outs))

    # ---- questions ----

    def contiguity(self, source: str, target: str) -> int:
        """Returns how many consecutive indices of `source` map to consecutive coordinates of `target`, all else equal."""
        position = self.out_names.index(target)
        count = 1
        for basis in self.bases(source):
            if any(x != (count if axis == position else 0) for axis, x in enumerate(basis)):
                break
            count *= 2
        return count

    def free_bits(self, name: str) -> int:
        """Returns the mask of the bits of an input dimension that do not matter: places that differ in them hold the same."""
        return sum(1 << bit for bit, basis in enumerate(self.bases(name)) if not any(basis))
