"""torchao: quantisation to fp8 and int8 in blocks, and products of what was quantised."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.engines.cases import Pair, case
from tests.engines.packages.checks.inputs import normal, uniform

PACKAGE = "torchao"
ROWS, COLUMNS = 256, 512


def quantised(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x / scale).to(torch.float8_e4m3fn).float()


@case(PACKAGE, "fp8_blockwise_act_quant, fp8_blockwise_weight_quant, fp8_blockwise_weight_dequant", 7e-2)
def blockwise() -> Iterator[Pair]:
    from torchao.kernel import blockwise_quantization as kernels

    x = normal(ROWS, COLUMNS)
    got, scale = kernels.fp8_blockwise_act_quant(x, 128)
    wanted = x.view(ROWS, -1, 128).abs().amax(-1) / 448
    yield scale, wanted
    yield got.float(), quantised(x, wanted.repeat_interleave(128, 1))  # neighbours of fp8 are up to 0.067 apart
    got, scale = kernels.fp8_blockwise_weight_quant(x, 128)
    wanted = x.view(ROWS // 128, 128, -1, 128).abs().amax((1, 3)) / 448
    whole = wanted.repeat_interleave(128, 0).repeat_interleave(128, 1)
    yield scale, wanted
    yield got.float(), quantised(x, whole)
    yield kernels.fp8_blockwise_weight_dequant(got, scale, 128), got.float() * whole


@case(PACKAGE, "blockwise_fp8_gemm", 1e-2)
def blockwise_product() -> Iterator[Pair]:
    from torchao.kernel.blockwise_quantization import blockwise_fp8_gemm

    a, b = normal(64, COLUMNS).to(torch.float8_e4m3fn), normal(ROWS, COLUMNS).to(torch.float8_e4m3fn)
    scale_a, scale_b = uniform(64, COLUMNS // 128), uniform(ROWS // 128, COLUMNS // 128)
    whole_b = scale_b.repeat_interleave(128, 0).repeat_interleave(128, 1)
    wanted = (a.float() * scale_a.repeat_interleave(128, 1)) @ (b.float() * whole_b).T
    yield blockwise_fp8_gemm(a, scale_a, b, scale_b, 128).float(), wanted


@case(PACKAGE, "int_matmul, int_scaled_matmul: kernels of intmm_triton", 1e-5)
def int8_products() -> Iterator[Pair]:
    from torchao.kernel import intmm_triton as kernels

    a = torch.randint(-128, 128, (64, COLUMNS), dtype=torch.int8)
    b = torch.randint(-128, 128, (COLUMNS, ROWS), dtype=torch.int8)
    scales = uniform(64, 1)
    wanted = a.int() @ b.int()
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
    out = torch.empty(64, ROWS, dtype=torch.int32)
    kernels.int_matmul_kernel(a, b, out, kernels.triton.Config(config, num_warps=4, num_stages=2))
    yield out, wanted
    scaled = torch.empty(64, ROWS)
    kernels.int_scaled_matmul_kernel(a, b, scales, scaled, kernels.triton.Config(config, num_warps=4, num_stages=2))
    yield scaled, wanted * scales
