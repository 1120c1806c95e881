"""The kernels that are mutated: where each stands, and what it is launched with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
I8, I16, I32, I64 = torch.int8, torch.int16, torch.int32, torch.int64
MARGIN = 1024
"""Elements before and after each argument that belong to its memory: where most mutants that miss their argument land."""


class Draw:
    """Arguments from a seed. Floats are multiples of 1/8, whose sums have no error. Where `salted`, extremes are among them."""

    def __init__(self, salted: bool) -> None:
        self._random = torch.Generator().manual_seed(0)
        self._salted = salted

    def real(self, count: int, dtype: torch.dtype = F32) -> torch.Tensor:
        made = (torch.randint(-24, 25, (count + 2 * MARGIN,), generator=self._random) / 8).to(dtype)
        return self._among(made, [math.inf, -math.inf, math.nan, -0.0])[MARGIN : MARGIN + count]

    def whole(self, count: int, dtype: torch.dtype = I32, low: int = -20, high: int = 20) -> torch.Tensor:
        made = torch.randint(low, high, (count + 2 * MARGIN,), generator=self._random).to(dtype)
        limits = torch.iinfo(dtype)
        extremes = [limits.min, limits.max, -1, limits.min + 1] if (low, high) == (-20, 20) else []  # others are places
        return self._among(made, extremes)[MARGIN : MARGIN + count]

    def _among(self, made: torch.Tensor, extremes: list[Any]) -> torch.Tensor:
        if self._salted and extremes:
            places = torch.randint(0, len(made), (len(made) // 10,), generator=self._random)
            which = torch.randint(0, len(extremes), (len(places),), generator=self._random)
            made[places] = torch.tensor(extremes, dtype=made.dtype)[which]
        return made


@dataclass(frozen=True)
class Seed:
    """A kernel of a test file, by its dotted name, the launch's arguments and its compile-time values."""

    file: str
    kernel: str
    grid: tuple[int, ...]
    arguments: Callable[[Draw], list[Any]]
    constexprs: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.file}:{self.kernel}"


_FRONTEND, _CUDA, _ROWS = "frontend/kernels.py", "backends/cuda/kernels.py", "backends/cuda/tile_kernels.py"
_TILES, _OPS, _SUMS = "backends/cpu/test_tiles.py", "backends/cpu/test_tile_ops.py", "backends/cpu/test_reductions.py"
_PRODUCTS = "backends/cpu/test_tile_products.py"
_BLOCKS = "backends/cpu/test_descriptors.py"

SEEDS = (
    Seed(_FRONTEND, "vector_add", (2,), lambda d: [d.real(50), d.real(50), d.real(50), 50], {"BLOCK": 32}),
    Seed(
        _FRONTEND, "softmax_rows", (2,), lambda d: [d.real(96), d.real(96), 16, 16, 5, 13], {"BLOCK": 16, "num_stages": 2}
    ),
    Seed(
        _FRONTEND, "layer_norm_backward", (3,),
        lambda d: [d.real(48, F16), d.real(48, F16), d.real(16), d.real(48, F16), d.real(16), d.real(3), d.real(3), 16, 13],
        {"BLOCK": 16},
    ),
    Seed(
        _FRONTEND, "matmul_grouped", (4,),
        lambda d: [d.real(24 * 24, BF16), d.real(24 * 24, BF16), d.real(24 * 24, BF16), 24, 24, 24, 24, 1, 24, 1, 24, 1],
        {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 2, "ACTIVATION": "leaky_relu"},
    ),
    Seed(
        _FRONTEND, "attention_forward", (2, 1),
        lambda d: [d.real(512), d.real(512), d.real(512), d.real(512), d.real(32), 0.25, 512, 16, 30],
        {"HEAD_DIM": 16, "BLOCK_M": 16, "BLOCK_N": 16, "STAGE": 3},
    ),
    Seed(
        _FRONTEND, "rope", (2, 2), lambda d: [d.real(2 * 96), 96, d.real(16), d.real(16), 8, 2, 6],
        {"HEAD_DIM": 16, "BACKWARD": True},
    ),
    Seed(_FRONTEND, "swiglu", (2,), lambda d: [d.real(64, BF16), d.real(64, BF16), d.real(64, BF16), 32, 30], {"BLOCK": 32}),
    Seed(
        _FRONTEND, "cross_entropy", (3,), lambda d: [d.real(96), 32, d.whole(3, I64, 0, 3), d.real(3), 30, 1, 0.125],
        {"BLOCK": 16},
    ),
    Seed(_TILES, "transpose", (2, 2), lambda d: [d.whole(30 * 20, I8), d.whole(30 * 20, I8), 30, 20], {"BM": 16, "BN": 16}),
    Seed(
        _PRODUCTS, "matmul", (2, 1), lambda d: [d.real(600, F16), d.real(600, F16), d.real(600), 20, 18, 30],
        {"BM": 16, "BN": 32, "BK": 16, "TRANSPOSED": True},
    ),
    Seed(_PRODUCTS, "batched_product", (1,), lambda d: [d.real(512), d.real(512), d.real(512)], {"B": 2, "M": 16, "N": 16, "K": 16}),
    Seed(_TILES, "swap_in_a_loop", (1,), lambda d: [d.real(32), d.real(32), d.real(64), 4], {"BLOCK": 32}),
    Seed(_TILES, "old_value_used_late", (1,), lambda d: [d.real(32), d.real(32), 3], {"BLOCK": 32}),
    Seed(_TILES, "branches", (1,), lambda d: [d.whole(32), d.whole(32), 1], {"BLOCK": 32}),
    Seed(_PRODUCTS, "loaded_or_summed", (1,), lambda d: [d.real(64), d.real(512), d.real(64), 1], {"S": 8}),
    Seed(_PRODUCTS, "one_product_or_another", (1,), lambda d: [d.real(256), d.real(256), d.real(512), 2], {"S": 16}),
    Seed(_TILES, "nested_loops", (1,), lambda d: [d.real(256), d.real(64), 4, 3], {"BLOCK": 64}),
    Seed(_TILES, "rotate_in_place", (1,), lambda d: [d.whole(128)], {"BLOCK": 64}),
    Seed(_TILES, "load_before_store", (1,), lambda d: [d.whole(64), d.whole(64, I16), d.whole(64, I64)], {"BLOCK": 64}),
    Seed(_TILES, "gather_scatter", (1,), lambda d: [d.real(128), d.whole(64, I32, 0, 64), d.real(64)], {"BLOCK": 64}),
    Seed(_TILES, "reshape_and_join", (1,), lambda d: [d.real(128, F64), d.real(128, F64)], {"A": 8, "B": 16}),
    Seed(_TILES, "join", (1,), lambda d: [d.whole(16, I16), d.whole(16, I16), *(d.whole(32, I64) for _ in range(3))], {"N": 16}),
    Seed(_TILES, "calls", (1,), lambda d: [d.whole(16, I64), d.whole(16, I64)], {"N": 16}),
    Seed(_TILES, "count", (3,), lambda d: [d.whole(150, I32, 0, 7), d.whole(8), 150], {"BLOCK": 64}),
    Seed(_TILES, "add_up", (2,), lambda d: [d.real(60, F16), d.real(4, F16), d.real(60, F16), 60], {"BLOCK": 32}),
    Seed(_TILES, "early_return", (4,), lambda d: [d.real(50), d.real(50), 50], {"BLOCK": 16}),
    Seed(
        _TILES, "layer_norm", (3,), lambda d: [d.real(90), d.real(30), d.real(30), d.real(90), 30, 0.125], {"BLOCK": 16}
    ),
    Seed(_TILES, "polynomial", (1,), lambda d: [d.real(64), d.real(64)], {"TERMS": 4, "BLOCK": 64}),
    Seed(_SUMS, "custom", (1,), lambda d: [d.whole(64, I32, -(10**6), 10**6), d.whole(4)], {"M": 4, "BLOCK": 16}),
    Seed(_SUMS, "running_sum", (1,), lambda d: [d.whole(64, I16), d.whole(64)], {"AXIS": 0, "REVERSE": True, "M": 4, "BLOCK": 16}),
    Seed(_SUMS, "everything", (1,), lambda d: [d.whole(64, I8), d.whole(3, I64), 15], {"M": 4, "BLOCK": 16}),
    Seed(_SUMS, "three_axes", (1,), lambda d: [d.real(128), d.real(32)], {"AXIS": 1, "A": 4, "B": 4, "C": 8}),
    Seed(
        _OPS, "test_gathers_along_each_axis_with_places_that_wrap.kernel", (1,),
        lambda d: [d.real(256), d.whole(256, I32, 0, 64), d.real(128), d.real(32)], {"M": 8, "N": 32, "K": 4},
    ),
    Seed(
        _OPS, "test_a_histogram_counts_what_is_in_range_and_not_masked.kernel", (1,),
        lambda d: [d.whole(64, I32, -4, 20), d.whole(16), 50], {"N": 64, "BINS": 16},
    ),
    Seed(
        _OPS, "test_sort_flip_and_topk.kernel", (1,), lambda d: [d.real(64), d.real(64), d.real(64), d.real(16)],
        {"M": 4, "N": 16, "K": 4, "DOWN": True},
    ),
    Seed(
        _OPS, "test_functions_of_elements_may_loop_and_take_neighbours.kernel", (1,),
        lambda d: [d.whole(32, I32, 1, 30), d.whole(32), *(d.whole(32) for _ in range(3))], {"M": 2, "N": 16},
    ),
    Seed(
        _OPS, "test_reductions_and_scans_of_functions_that_branch.kernel", (1,),
        lambda d: [d.whole(128, I32, 0, 2), d.whole(16), d.whole(128)], {"M": 8, "N": 16},
    ),
    Seed(
        _OPS, "test_while_loops_carry_tiles_and_scalars.kernel", (1,), lambda d: [d.real(32), d.real(64), 50.0], {"N": 32}
    ),
    Seed(
        _OPS, "test_atomics_of_every_kind_under_masks.kernel", (2,),
        lambda d: [d.whole(128), d.whole(8 * 16), d.whole(128), 100], {"N": 64, "CELLS": 16, "INTEGERS": True},
    ),
    Seed(
        _OPS, "test_block_pointers_move_and_mask.kernel", (1,), lambda d: [d.real(8 * 24), d.real(7 * 21), 7, 21, 24],
        {"M": 8, "N": 8, "PADDING": "nan"},
    ),
    Seed(
        _OPS, "test_concatenation_keeps_the_order.kernel", (1,), lambda d: [d.real(32), d.real(64), d.real(64)], {"M": 4, "N": 8}
    ),
    Seed(_OPS, "test_bits_of_integers_are_combined.kernel", (1,), lambda d: [d.whole(64), d.whole(2)], {"N": 64}),
    Seed(_OPS, "_halves", (1,), lambda d: [d.real(128), d.real(64)], {"A": 2, "B": 4, "C": 16}),
    Seed(
        _OPS, "test_a_failed_assertion_ends_its_program_and_the_launch_raises.kernel", (8,),
        lambda d: [d.real(8).abs_(), d.real(8)],
    ),
    Seed(_BLOCKS, "move", (2,), lambda d: [d.real(20 * 15), d.real(20 * 12), 20, 12, -3, 2], {"BM": 16, "BN": 8, "PAD": "zero"}),
    Seed(
        _BLOCKS, "product", (1, 1), lambda d: [d.real(16 * 24), d.real(16 * 24), d.real(256), 15, 16, 24],
        {"BM": 16, "BN": 16, "BK": 16},
    ),
    Seed(_BLOCKS, "rows", (1,), lambda d: [d.real(130), d.real(130), d.real(130), d.whole(8, I32, -1, 8), 7, 18]),
    Seed(_CUDA, "integer_mix", (2,), lambda d: [d.whole(50), d.whole(50, I32, 1, 9), d.whole(50), 50], {"B": 32}),
    Seed(_CUDA, "copy_2d", (1, 2), lambda d: [d.real(300), d.real(500), 14, 18, 20, 1, 1, 20], {"BM": 16, "BN": 16, "OTHER": -1.0}),
    Seed(_CUDA, "rearrange", (1,), lambda d: [d.real(64, BF16), d.real(64, BF16)], {"A": 4, "B": 2, "C": 8}),
    Seed(_ROWS, "order", (1,), lambda d: [d.real(64), d.whole(64, I32, 0, 16), d.real(64), d.whole(8)], {"M": 4, "N": 16}),
    Seed(_ROWS, "repeated_rows", (1,), lambda d: [d.real(8), d.real(8), d.whole(8)], {"M": 4, "N": 8}),
    Seed(_ROWS, "moments", (1,), lambda d: [d.real(64), d.real(32)], {"M": 4, "N": 16, "AXIS": 1}),
    Seed(_ROWS, "recurrence", (1,), lambda d: [d.real(64), d.real(64), d.real(64)], {"M": 4, "N": 16, "REVERSE": True}),
    Seed(_ROWS, "updates", (1,), lambda d: [d.real(64), d.real(8), d.whole(16)], {"N": 64}),
    Seed("passes/test_unroll_loops.py", "digits", (1,), lambda d: [d.whole(1), 0, 7], {"STEP": 2, "OUTER": 2, "INNER": 3}),
)  # fmt: skip
