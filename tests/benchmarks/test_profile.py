"""Profiles: gaps are those on the GPU's time line, and the picture shows one layer of each contender to one scale."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import torch

from benchmarks.profile import STEPS, WIDTH, Encoder, Kernel, Ops, busy, gaps, one_layer, part_of, picture


def timeline(pause: float) -> list[Kernel]:
    """Three layers of two layer norms, a product, attention and gelu, each of 10 us, with `pause` between."""
    parts = ["layer norm", "other", "attention", "other", "layer norm", "other", "gelu", "other"] * 3
    step = 10e-6 + pause
    return [Kernel(part, index * step, index * step + 10e-6) for index, part in enumerate(parts)]


def test_gaps_are_before_and_after() -> None:
    assert gaps(timeline(2e-6), "attention") == pytest.approx([2e-6] * 6)
    overlapping = [Kernel("other", 0.0, 5.0), Kernel("gelu", 4.0, 6.0), Kernel("other", 9.0, 10.0)]
    assert gaps(overlapping, "gelu") == [0.0, 3.0]


def test_busy_time_is_that_of_one_step() -> None:
    assert busy(timeline(2e-6), "layer norm") == pytest.approx(6 * 10e-6 / STEPS)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mha_fwd_hopper_bf16", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "attention"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel", "layer norm"),
        ("void at::native::vectorized_elementwise_kernel<GeluCUDAKernelImpl>", "gelu"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "other"),
    ],
)
def test_kernels_are_told_apart_by_name(name: str, part: str) -> None:
    assert part_of(name) == part


def test_picture_shows_one_layer_of_each() -> None:
    layer = one_layer(timeline(1e-6))
    assert [kernel.part for kernel in layer] == [k.part for k in timeline(0)[:8]]
    drawing = ET.fromstring(picture({"slow <one>": one_layer(timeline(10e-6)), "fast": one_layer(timeline(0))}))
    boxes = [float(e.get("width", "")) for e in drawing.iter("{http://www.w3.org/2000/svg}rect") if len(e)]
    assert len(boxes) == 16
    assert max(boxes) == pytest.approx(min(boxes), abs=0.011)  # to one scale
    assert "slow <one>" in [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]


def test_encoder_hands_its_parts_to_the_contender() -> None:
    called: list[str] = []

    def note(name: str, result: torch.Tensor) -> torch.Tensor:
        called.append(name)
        return result

    ops = Ops(lambda x, w, b: note("norm", x), lambda q, k, v: note("attention", v), lambda x: note("gelu", x))
    x = torch.randn(2, 4, WIDTH)
    assert Encoder("cpu", torch.float32)(ops, x).shape == x.shape
    assert called == ["norm", "attention", "norm", "gelu"] * 4
