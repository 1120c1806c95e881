"""tt, continued: gathers within a tile, histograms, regions applied to elements, functions of libraries, inline assembly,
assertions and printing."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Attribute, Operation, Value
from kernelpack.ir.dialect import Dialect, Effect, Trait, attr, row
from kernelpack.ir.types import I32, Type, element_of, shape_of, with_element


def _infer_gather(operands: Sequence[Value], attributes: dict[str, Attribute]) -> list[Type]:
    return [with_element(operands[1].type, element_of(operands[0].type))]


def _check_gather(op: Operation) -> str | None:
    source, indices, axis = shape_of(op.operands[0].type), shape_of(op.operands[1].type), op.attributes["axis"]
    if len(source) != len(indices) or not 0 <= axis < len(source):
        return f"axis {axis} does not fit shapes {source} and {indices}"
    fits = all(a == b for at, (a, b) in enumerate(zip(source, indices, strict=True)) if at != axis)
    return None if fits else f"shapes {source} and {indices} differ outside of axis {axis}"


def _check_histogram(op: Operation) -> str | None:
    source, *mask = (shape_of(value.type) for value in op.operands)
    if len(source) != 1 or mask not in ([], [source]):
        return "takes a tile of one axis, and a mask of its shape"
    fits = len(shape_of(op.result.type)) == 1 and element_of(op.result.type) == I32
    return None if fits else "gives a tile of i32 of one axis"


def _check_map(op: Operation) -> str | None:
    """The region takes `pack` neighbours of each operand in turn and gives as many of each result."""
    pack = op.attributes["pack"]
    if pack < 1 or not op.operands:
        return "takes at least one operand, and a pack of 1 or more"
    if len({shape_of(value.type) for value in (*op.operands, *op.results)}) != 1:
        return "operands and results differ in shape"
    taken = [element_of(value.type) for value in op.operands for _ in range(pack)]
    if [argument.type for argument in op.body.arguments] != taken:
        return f"the region must take {pack} elements of each operand"
    if op.body.terminator.name != "tt.map_elementwise.return":
        return "the region ends in tt.map_elementwise.return"
    given = [element_of(value.type) for value in op.results for _ in range(pack)]
    returned = [value.type for value in op.body.terminator.operands]
    return None if returned == given else f"the region must give {pack} elements of each result"


def _check_extern(op: Operation) -> str | None:
    shapes = {shape_of(value.type) for value in (*op.operands, op.result)}
    return None if len(shapes) == 1 else "operands and result differ in shape"


def _check_asm(op: Operation) -> str | None:
    shapes = {shape_of(value.type) for value in (*op.operands, *op.results)}
    if len(shapes) > 1:
        return "operands and results differ in shape"
    return None if op.attributes.get("packed_element", 1) >= 1 else "packed_element is 1 or more"


def _check_print(op: Operation) -> str | None:
    signs = op.attributes.get("is_signed", ())
    return None if len(signs) == len(op.operands) else "is_signed needs one entry an operand"


TILE_OPS = Dialect(
    "tt",
    [
        # result[i, j] = src[indices[i, j], j] for axis 0, and so on
        row(
            "tt.gather",
            "src: tensor, indices: tensor",
            result="tensor",
            attributes=[attr("axis", "i32")],
            traits=[Trait.PURE],
            format="$src [ $indices ] attr-dict : functional-type",
            infer=_infer_gather,
            check=_check_gather,
        ),
        # counts how often each value below the result's extent occurs where the mask is on; other values are not counted
        row(
            "tt.histogram",
            "src: int, mask?: bool",
            result="tensor",
            traits=[Trait.PURE],
            format="$src (, $mask)? attr-dict : type($src) -> type($result)",
            check=_check_histogram,
        ),
        row(
            "tt.map_elementwise",
            "srcs*: tensor",
            results=None,
            result="tensor",
            attributes=[attr("pack", "i32")],
            regions=1,
            traits=[Trait.PURE],
            check=_check_map,
        ),
        row(
            "tt.map_elementwise.return",
            "values*",
            results=0,
            traits=[Trait.TERMINATOR],
            format="$values : type($values)",
        ),
        # a function of a device library by its symbol; without `pure` it may have effects
        row(
            "tt.extern_elementwise",
            "srcs*",
            attributes=[
                attr("libname", "str", default=""),
                attr("libpath", "str", default=""),
                attr("symbol", "str"),
                attr("pure", "bool", default=True),
            ],
            traits=[Trait.PURE, Trait.ELEMENTWISE],
            format="$srcs attr-dict : functional-type",
            check=_check_extern,
        ),
        # machine instructions for `packed_element` neighbours at a time
        row(
            "tt.elementwise_inline_asm",
            "args*",
            results=None,
            attributes=[
                attr("asm_string", "str"),
                attr("constraints", "str"),
                attr("pure", "bool", default=True),
                attr("packed_element", "i32", default=1),
            ],
            traits=[Trait.PURE],
            check=_check_asm,
        ),
        row(
            "tt.print",
            "args*",
            results=0,
            attributes=[attr("prefix", "str"), attr("hex", "bool", default=False), attr("is_signed", "ints", default=())],
            effects=[Effect.OTHER],
            check=_check_print,
        ),
        # stops the program where the condition does not hold everywhere
        row(
            "tt.assert",
            "condition: bool",
            results=0,
            attributes=[attr("message", "str")],
            effects=[Effect.OTHER],
        ),
    ],
)
