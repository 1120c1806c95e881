"""bitsandbytes: quantisation in blocks and optimisers on quantised states, against the package's own code in C++ and torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.engines.cases import Pair, case
from tests.engines.packages.checks.inputs import normal, uniform

PACKAGE = "bitsandbytes"
ELEMENTS = 64 * 257


@case(PACKAGE, "quantize_blockwise, dequantize_blockwise, 8 bit", 1e-6)
def eight_bits() -> Iterator[Pair]:
    from bitsandbytes.backends.triton import kernels_8bit_quant as triton_kernels
    from bitsandbytes.functional import create_dynamic_map

    code = create_dynamic_map()
    for blocksize in (64, 256):
        x = normal(ELEMENTS)
        wanted_absmax = torch.nn.functional.pad(x.abs(), (0, -ELEMENTS % blocksize)).view(-1, blocksize).amax(1)
        scaled = x / wanted_absmax.repeat_interleave(blocksize)[:ELEMENTS]
        wanted = (scaled[:, None] - code).abs().argmin(1).to(torch.uint8)  # the C++ code of the package is not always nearest
        got, absmax = triton_kernels.quantize_blockwise_triton(x, code, blocksize)
        yield absmax, wanted_absmax
        yield code[got.long()].view(-1), code[wanted.long()]
        for dtype in (torch.float32, torch.bfloat16):
            yield (
                triton_kernels.dequant_8bit_blockwise(wanted, absmax, code, blocksize, dtype=dtype),
                torch.ops.bitsandbytes.dequantize_blockwise(wanted, absmax, code, blocksize, dtype),
            )


@case(PACKAGE, "quantize_4bit, dequantize_4bit: nf4, fp4", 1e-5)
def four_bits() -> Iterator[Pair]:
    from bitsandbytes.backends.triton import kernels_4bit

    for kind in ("nf4", "fp4"):
        x, pairs = normal(ELEMENTS), -(ELEMENTS // -128)
        wanted, wanted_absmax = torch.ops.bitsandbytes.quantize_4bit(x, 64, kind, torch.uint8)
        absmax, packed = torch.empty(pairs * 2), torch.empty((ELEMENTS // 2, 1), dtype=torch.uint8)
        kernels_4bit.quantize_4bit_blockwise_triton(x, 64, kind, pairs, absmax, ELEMENTS, packed)
        yield absmax[: ELEMENTS // 64], wanted_absmax
        restored = [
            torch.ops.bitsandbytes.dequantize_4bit(bits, wanted_absmax, 64, kind, [1, ELEMENTS], torch.float32)
            for bits in (packed, wanted)
        ]
        yield (restored[0] - x).abs(), (restored[1] - x).abs()  # as near, where x lies between two codes and may go to either
        for dtype in (torch.float32, torch.bfloat16):
            whole = [wanted_absmax, 64, kind, [1, ELEMENTS], dtype]
            expected = torch.ops.bitsandbytes.dequantize_4bit(wanted, *whole)
            out = torch.empty(1, ELEMENTS, dtype=dtype)
            kernels_4bit.dequantize_4bit_impl(wanted, wanted_absmax, 64, kind, dtype, out)
            yield out, expected


@case(PACKAGE, "optimizer_update_32bit: adam, ademamix, momentum, lion, rmsprop, adagrad", 1e-5)
def optimisers() -> Iterator[Pair]:
    from bitsandbytes.backends.triton.kernels_optim import optimizer_update_32bit_impl

    for name, states in (("adam", 2), ("ademamix", 2), ("momentum", 1), ("lion", 1), ("rmsprop", 1), ("adagrad", 1)):
        g, p, first = normal(ELEMENTS), normal(ELEMENTS), uniform(2, ELEMENTS) if name == "ademamix" else uniform(ELEMENTS)
        second = uniform(ELEMENTS) if states == 2 else None
        results = []
        for update in (optimizer_update_32bit_impl, torch.ops.bitsandbytes.optimizer_update_32bit):
            held = [x.clone() if x is not None else None for x in (p, first, second)]
            update(name, g, *held, None, 0.0, 0.0, 0.9, 0.99, 0.999, 0.5, 1e-8, 0.01, 3, 1e-2, 1.0)
            results.append([x for x in held if x is not None])
        yield from zip(*results, strict=True)


@case(PACKAGE, "optimizer_update_8bit_blockwise: adam, momentum, lion, rmsprop, adagrad", 2e-2)
def optimisers_8bit() -> Iterator[Pair]:
    from bitsandbytes.backends.triton import kernels_optim
    from bitsandbytes.functional import create_dynamic_map

    signed, unsigned = create_dynamic_map(signed=True), create_dynamic_map(signed=False)
    for name, states in (("adam", 2), ("momentum", 1), ("lion", 1), ("rmsprop", 1), ("adagrad", 1)):
        g, p, first_map = normal(ELEMENTS), normal(ELEMENTS), signed if name in ("adam", "momentum", "lion") else unsigned
        first, absmax1 = torch.ops.bitsandbytes.quantize_blockwise(uniform(ELEMENTS), first_map, 256)
        second, absmax2 = torch.ops.bitsandbytes.quantize_blockwise(uniform(ELEMENTS), unsigned, 256)
        results = []
        for update in (
            kernels_optim.optimizer_update_8bit_blockwise_impl,
            kernels_optim.optimizer_update_8bit_blockwise_pytorch,
        ):
            held = {"p": p, "state1": first, "absmax1": absmax1}
            held |= {"state2": second, "absmax2": absmax2} if states == 2 else {}
            held = {key: value.clone() for key, value in held.items()}
            update(
                optimizer_name=name, g=g, **({"state2": None, "absmax2": None} | held), qmap1=first_map,
                qmap2=unsigned if states == 2 else None, beta1=0.9, beta2=0.99, beta3=0.0, alpha=0.5, eps=1e-8, step=3, lr=1e-2,
                weight_decay=0.01 if states == 2 else 0.0, gnorm_scale=1.0, skip_zeros=False,
            )  # fmt: skip
            maps = {"state1": first_map, "state2": unsigned}  # neighbours in a map are up to 0.014 apart
            results.append([maps[key][value.long()] if key in maps else value for key, value in held.items()])
        yield from zip(*results, strict=True)
