"""place_shared: offsets and barriers of buffers in shared memory."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.errors import OutOfResources
from kernelpack.layout.families import Threads, spread, swizzled
from tests.analysis.ttgir import gpu
from tests.backends.gpu.ttgir import check, parse

ROWS = spread((16, 16), 1, (1, 0), Threads(1, 32))


def test_buffers_get_offsets_and_barriers() -> None:
    layouts = {"x": ROWS, "memory": swizzled((16, 16), (1, 0))}
    memdesc = "!ttg.memdesc<16x16xf32, $memory, #ttg.shared_memory>"
    check(
        lambda function: place_shared(next(function.ancestors()), gpu(1 << 16)),
        "%x: tensor<16x16xf32, $x>",
        f"""
        %a = ttg.local_alloc %x : (tensor<16x16xf32, $x>) -> {memdesc}
        %y = ttg.local_load %a : {memdesc} -> tensor<16x16xf32, $x>
        """,
        f"""
        %a = ttg.local_alloc %x {{allocation.offset = 0 : i32}} : (tensor<16x16xf32, $x>) -> {memdesc}
        gpu.barrier
        %y = ttg.local_load %a : {memdesc} -> tensor<16x16xf32, $x>
        """,
        layouts,
    )
    with pytest.raises(OutOfResources, match="needs 1024 bytes of shared memory, the target has 1000"):
        place_shared(
            parse(f"%a = ttg.local_alloc %x : (tensor<16x16xf32, $x>) -> {memdesc}", "%x: tensor<16x16xf32, $x>", layouts),
            gpu(1000),
        )
