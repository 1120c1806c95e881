"""Products of warpgroups: descriptors of shared tiles, instructions, and what the assembler says about them."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.assemble.llir_to_ptx import llir_to_ptx
from kernelpack.backends.cuda.assemble.ptx_to_cubin import assemble, resources
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.machine.warpgroup import operand_tile
from kernelpack.errors import CompilationError
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.layout.encoding import LinearEncoding, tma_encoding
from kernelpack.layout.families import dim, swizzled, tma_tile, warpgroup_accumulator, warpgroup_operand
from kernelpack.options import Options
from kernelpack.target import Target

TARGET = CUDABackend().resolve_target(Target.parse("cuda:sm_90a"))


def fields(bits: int) -> tuple[int, int, int, int]:
    """The descriptor's leading and stride byte offsets, base offset and swizzle mode."""
    return (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, bits >> 49 & 7, bits >> 62


@pytest.mark.parametrize(
    ("layout", "bits", "k_axis", "expected", "step"),
    [
        # [M, K] or [N, K], K-major: a k-step of 16 is 32 bytes; the next 64 lie in another panel of rows * 128 bytes
        (tma_tile((128, 128), 16), 16, 1, (16, 1024, 0, 1), [0, 32, 64, 96, 128 * 128]),
        (tma_tile((128, 32), 16), 16, 1, (16, 512, 0, 2), [0, 32]),
        (tma_tile((64, 16), 16), 16, 1, (16, 256, 0, 3), [0]),
        # the same tile seen as B, [K, N]
        (tma_tile((64, 128), 16, (0, 1)), 16, 0, (16, 1024, 0, 1), [0, 32, 64, 96]),
        # [K, N], MN-major: panels of 64 columns, a k-step is 16 rows
        (tma_tile((64, 256), 16), 16, 0, (64 * 128, 1024, 0, 1), [0, 2048, 4096, 6144]),
        (tma_tile((32, 32), 16), 16, 0, (2048, 512, 0, 2), [0, 1024]),
    ],
)
def test_descriptors(layout: object, bits: int, k_axis: int, expected: tuple[int, ...], step: list[int]) -> None:
    tile = operand_tile(layout, bits, k_axis)
    assert tile is not None
    assert fields(tile.fixed_bits) == expected
    assert [tile.offset(0, 16 * number) for number in range(len(step))] == step


def test_warpgroups_read_their_own_rows() -> None:
    tile = operand_tile(tma_tile((128, 64), 16), 16, 1)
    assert tile is not None
    assert tile.offset(64, 0) == 8192


def test_tiles_that_no_descriptor_describes() -> None:
    assert operand_tile(swizzled((64, 64), (1, 0)), 16, 1) is None
    assert operand_tile(swizzled((64, 64), (1, 0), 8, 1, 4), 16, 1) is None
    # 32-bit elements must lie along K
    assert operand_tile(tma_tile((32, 64), 32), 32, 0) is None
    assert operand_tile(tma_tile((64, 32), 32), 32, 1) is not None


def lower(body: str, arguments: str, **encodings: object) -> tuple[str, CudaContext]:
    text = f"tt.func public @f({arguments}) {{\n{body}\ntt.return\n}}"
    for name, encoding in encodings.items():
        text = re.sub(rf"\${name}\b", str(encoding).replace("\\", ""), text)
    module = parse_module(text)
    verify(module)
    again = parse_module(str(module))
    verify(again)
    assert str(again) == str(module)
    module.attributes["ttg.shared"] = 0  # place_shared notes it in kernels that come from ttir
    lowered = CudaContext(TARGET, Options(num_warps=8), "f")
    return ttgir_to_llir(module, lowered), lowered


def shared(shape: str, kind: str, encoding: object) -> str:
    return f"!ttg.memdesc<{shape}x{kind}, {encoding}, #ttg.shared_memory>"


ACCUMULATOR = LinearEncoding(warpgroup_accumulator((128, 256), (8, 1)))
ROWS = LinearEncoding(warpgroup_operand((128, 64), 16, (8, 1)))
A = tma_encoding((128, 64), 16)
B_MN = tma_encoding((64, 256), 16)
B_K = tma_encoding((64, 256), 16, (0, 1))

PRODUCT = """
%zero = arith.constant dense<0.0> : tensor<128x256xf32, $ACC>
%a = ttg.local_alloc {allocation.offset = 0 : i32} : () -> $TA
%b = ttg.local_alloc {allocation.offset = 16384 : i32} : () -> $TB
ttng.fence_async_shared
%d = ttng.warp_group_dot %a, %b, %zero {isAsync = true} : $TA * $TB -> tensor<128x256xf32, $ACC>
%e = ttng.warp_group_dot %a, %b, %d {isAsync = true} : $TA * $TB -> tensor<128x256xf32, $ACC>
%f = ttng.warp_group_dot_wait {pendings = 0 : i32} of %e : tensor<128x256xf32, $ACC>
%q = tt.splat %p : !tt.ptr<f32> -> tensor<128x256x!tt.ptr<f32>, $ACC>
tt.store %q, %f : tensor<128x256x!tt.ptr<f32>, $ACC>
"""


@pytest.mark.parametrize(("b", "transposed"), [(B_MN, 1), (B_K, 0)])
def test_both_operands_in_shared_memory(b: object, transposed: int) -> None:
    llir, lowered = lower(
        PRODUCT, "%p: !tt.ptr<f32>", ACC=ACCUMULATOR, TA=shared("128x64", "bf16", A), TB=shared("64x256", "bf16", b)
    )
    calls = re.findall(
        r"setp.ne.b32 p, (\d), 0;\S* *wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 .*?, p, ([\d, ]+);", llir
    )
    assert [scale for scale, _ in calls] == ["0"] + ["1"] * 7
    assert {flags for _, flags in calls} == {f"1, 1, 0, {transposed}"}
    assert llir.count("wgmma.fence") == llir.count("wgmma.commit_group") == 2
    assert llir.count("wgmma.wait_group.sync.aligned 0") == 1
    ptx = llir_to_ptx(llir, lowered)
    log = assemble(ptx, "sm_90a").log
    assert not re.search(r"C75\d\d", log), log
    assert resources(log)["spills"] == 0
    # the second product takes the registers of the first: nothing moves between the two
    between = ptx.split("wgmma.commit_group")[1]
    assert "mov" not in between.split("wgmma.mma_async")[0].replace("mov.b64", "")


def test_rows_of_a_in_registers() -> None:
    body = """
%zero = arith.constant dense<0.0> : tensor<128x256xf32, $ACC>
%r = arith.constant dense<1.0> : tensor<128x64xbf16, $ROWS>
%b = ttg.local_alloc {allocation.offset = 0 : i32} : () -> $TB
%d = ttng.warp_group_dot %r, %b, %zero : tensor<128x64xbf16, $ROWS> * $TB -> tensor<128x256xf32, $ACC>
%q = tt.splat %p : !tt.ptr<f32> -> tensor<128x256x!tt.ptr<f32>, $ACC>
tt.store %q, %d : tensor<128x256x!tt.ptr<f32>, $ACC>
"""
    llir, lowered = lower(body, "%p: !tt.ptr<f32>", ACC=ACCUMULATOR, ROWS=ROWS, TA="", TB=shared("64x256", "bf16", B_MN))
    assert llir.count("{$128, $129, $130, $131}, $132, p, 1, 1, 1;") == 4
    assert not re.search(r"C75\d\d", assemble(llir_to_ptx(llir, lowered), "sm_90a").log)


def test_a_buffer_that_wgmma_cannot_read_is_refused() -> None:
    with pytest.raises(CompilationError, match="wgmma cannot read a tile of shared memory"):
        lower(
            PRODUCT,
            "%p: !tt.ptr<f32>",
            ACC=ACCUMULATOR,
            TA=shared("128x64", "bf16", A),
            TB=shared("64x256", "bf16", tma_encoding((64, 256), 16, swizzle=0)),
        )


def test_a_transposed_view_keeps_the_bytes() -> None:
    layout = tma_tile((128, 64), 16)
    assert layout.with_outs([dim(1), dim(0)]).rename_outs([dim(0), dim(1)]) == tma_tile((64, 128), 16, (0, 1))
