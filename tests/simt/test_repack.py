"""repack as it is compiled for GPUs: nothing is reported, and its bits are the reference's."""

from __future__ import annotations

import pytest

from ops.repack import Format
from tests.ops.grid import module_of
from tests.ops.quantized_blocks import BESIDE, differences, edge_scales, given
from tests.simt.emulated_ops import call
from tests.simt.test_ops import TARGETS


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("format", Format)
def test_bits_are_those_of_the_reference(target: str, format: Format) -> None:
    """Two tiles of columns of which one is ragged, and more blocks than a program takes."""
    columns = 72 if format in BESIDE else 67
    for inner, options in ((512, {"scales": edge_scales}), (256, {"group": 128}), (0, {})):
        arguments = given(format, columns, inner, **options)
        got, runs = call(target, module_of("repack").repack, arguments, {})
        assert not differences(got, arguments)
        assert len(runs) == (inner > 0)
