"""Pages that scripts make are what the code makes of them now."""

from __future__ import annotations

from pathlib import Path

import kernelpack as kp
from docs import host_functions, tour
from kernelpack.opgen.host.ops import OPS

MADE_OF_OTHERS = {"broadcast_strides", "floats", "rows_size", "rows_stride", "to_bool", "value", "meta", "concat"}
"""Operations that no expression of the page gives by itself: they are parts of others, or of launches."""


def test_the_tour_is_up_to_date() -> None:
    assert tour.page() == tour.PAGE.read_text(), "to fix: make docs"


def test_the_tour_shows_something_of_every_stage() -> None:
    empty = {name for name, text in tour.parts().items() if not text.replace("...", "").strip()}
    assert empty == set()


def test_what_host_functions_may_contain_is_up_to_date() -> None:
    assert host_functions.page() == host_functions.PAGE.read_text(), "to fix: make docs"


def test_every_operation_of_host_functions_has_an_example() -> None:
    examples = [one for group in host_functions.EXPRESSIONS.values() for one in group]
    shown = set().union(*(host_functions.operations_of(host_functions.value_of(one)) for one in examples))
    assert OPS.keys() - shown - MADE_OF_OTHERS == set()


def test_the_help_of_op_names_its_pages() -> None:
    pages = Path(tour.PAGE).parent
    for name in ("write-an-op.md", "host-functions.md"):
        assert name in (kp.op.__doc__ or "")
        assert (pages / name).exists()
