"""LinearLayout as triton.tools has it: a layout by its bases, to look at and to compute with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelpack.layout import linear


@dataclass(frozen=True)
class LinearLayout:
    """A linear map over F2 between named index spaces (kernelpack.layout.linear). Raises ValueError for sizes that are no powers of two,
    and bases outside of the outputs."""

    map: linear.LinearLayout

    @staticmethod
    def identity_1d(size: int, inDim: str, outDim: str) -> LinearLayout:
        """Maps every index to itself."""
        return LinearLayout(linear.LinearLayout.identity(size, inDim, outDim))

    @staticmethod
    def strided_1d(size: int, stride: int, inDim: str, outDim: str) -> LinearLayout:
        """Maps every index to its multiple."""
        bases = [[stride << bit] for bit in range(linear.log2(size))]
        return LinearLayout(linear.LinearLayout.make({inDim: bases}, {outDim: size * stride}))

    @staticmethod
    def zeros_1d(size: int, inDim: str, outDim: str, outDimSize: int = 1) -> LinearLayout:
        """Maps every index to 0."""
        return LinearLayout(linear.LinearLayout.make({inDim: [[0]] * linear.log2(size)}, {outDim: outDimSize}))

    @staticmethod
    def from_bases(
        bases: Sequence[tuple[str, Sequence[Sequence[int]]]],
        out_dim_names: Sequence[str],
        out_dim_sizes: Sequence[int] | None = None,
        require_surjective: bool = True,
    ) -> LinearLayout:
        """Returns the map of some images of powers of two. Without sizes the outputs are as large as these need."""
        images = [image for _, entries in bases for image in entries]
        needed = [1 << max((image[axis] for image in images), default=0).bit_length() for axis in range(len(out_dim_names))]
        sizes = needed if out_dim_sizes is None else out_dim_sizes
        made = LinearLayout(linear.LinearLayout.make(dict(bases), dict(zip(out_dim_names, sizes, strict=True))))
        if require_surjective and not made.is_surjective():
            raise ValueError(f"{made} does not reach all of its outputs")
        return made

    @property
    def bases(self) -> list[tuple[str, list[list[int]]]]:
        return [(name, [list(image) for image in entries]) for name, entries in self.map.ins]

    @property
    def out_dims(self) -> list[tuple[str, int]]:
        return list(self.map.outs)

    def apply(self, inputs: Mapping[str, int]) -> dict[str, int]:
        """Returns the image of a place. Raises ValueError for names that are not those of the inputs."""
        if set(inputs) != set(self.map.in_names):
            raise ValueError(f"the inputs are {', '.join(self.map.in_names)}, got {', '.join(inputs)}")
        return dict(zip(self.map.out_names, self.map(**inputs), strict=True))

    def is_surjective(self) -> bool:
        return self.map.is_surjective

    def is_injective(self) -> bool:
        return self.map.is_injective

    def is_invertible(self) -> bool:
        return self.is_surjective() and self.is_injective()

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        return LinearLayout(self.map * other.map)

    def compose(self, other: LinearLayout) -> LinearLayout:
        """Returns x -> other(self(x))."""
        return LinearLayout(self.map.compose(other.map))

    def invert(self) -> LinearLayout:
        return LinearLayout(self.map.invert())

    def invert_and_compose(self, other: LinearLayout) -> LinearLayout:
        """Returns x -> y with other(y) = self(x)."""
        return LinearLayout(self.map.invert_and_compose(other.map))

    def get_matrix_view(self) -> list[list[int]]:
        """Returns the map as a matrix over F2: a column for each bit of the inputs, a row for each bit of the outputs."""
        columns = [self.map.pack(image) for _, entries in self.map.ins for image in entries]
        bits = sum(linear.log2(size) for size in self.map.shape)
        return [[column >> bit & 1 for column in columns] for bit in range(bits)]

    def __str__(self) -> str:
        return f"{self.bases} -> {self.out_dims}"
