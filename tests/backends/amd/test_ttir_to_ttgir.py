"""From ttir to ttgir for AMD's GPUs: layouts of 64 lanes, conversions that are needed, shared memory placed, nothing of NVIDIA's."""

from __future__ import annotations

import re

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.amd.ttir_to_ttgir import TTGIR
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.kernel.jit import JITFunction
from kernelpack.passes.pipeline import Pass, Pipeline
from tests.backends.amd.kernels import ADD, TOTAL, add, compiled, total


@kp.jit
def turned(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * BLOCK + i[None, :])
    tl.store(out + i[None, :] * BLOCK + i[:, None], tile)


def ttgir(fn: JITFunction, types: dict[str, str], block: int) -> str:
    return str(compiled(fn, types, {"BLOCK": block}, until="ttgir", aligned=True).stages["ttgir"])


def test_every_tile_has_a_layout_and_the_module_says_for_whom() -> None:
    text = ttgir(add, ADD, 1024)
    module = parse_module(text)
    verify(module)
    said = {name: module.attributes[f"ttg.{name}"] for name in ("num-warps", "threads-per-warp", "shared", "target")}
    assert said == {"num-warps": 4, "threads-per-warp": 64, "shared": 0, "target": "amdgpu:gfx942"}
    assert re.search(r"tensor<[^#>]*>", text.replace("!tt.ptr<f32>", "pointer")) is None


def test_what_one_layout_serves_is_not_converted() -> None:
    assert "ttg.convert_layout" not in ttgir(add, ADD, 1024)


def test_a_transposition_meets_in_shared_memory_with_barriers_between() -> None:
    """Rows are read and columns are written, each in vectors of 16 bytes."""
    text = ttgir(turned, {"x": "*fp32", "out": "*fp32"}, 64)
    kinds = re.findall(r"ttg\.local_alloc|ttg\.local_load|ttg\.convert_layout|gpu\.barrier", text)
    assert kinds == ["ttg.local_alloc", "gpu.barrier", "ttg.local_load"]
    assert "allocation.offset = 0 : i32" in text
    assert parse_module(text).attributes["ttg.shared"] == 64 * 64 * 4


def test_a_reduction_is_split_where_its_warps_meet() -> None:
    module = parse_module(ttgir(total, TOTAL, 4096))
    assert module.attributes["ttg.shared"] == 16  # a float of each of four warps
    names = [op.name for op in module.walk()]
    assert names.count("tt.reduce") == 2
    assert "gpu.barrier" in names


def test_passes_that_stand_before_what_they_need_are_no_pipeline() -> None:
    by_name = {part.name: part for part in TTGIR.parts if isinstance(part, Pass)}
    assert list(by_name) == ["carry_scalars", "narrow_offsets", "place_shared"]
    with pytest.raises(ValueError, match="place_shared needs stage_shared before it"):
        Pipeline("ttgir", (by_name["place_shared"], *TTGIR.parts))
