"""A call whose result has no element launches nothing, however many rows it has: 2**40 of them return at once, in every mode."""

from __future__ import annotations

import pytest
import torch

from tests.ops.functional import has_out, module_of, results_of
from tests.ops.grid import OPS

MANY = 2**40  # a loop over as many programs would not end
e4m3 = torch.float8_e4m3fn


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


CALLS: list[tuple[str, tuple[torch.Tensor, ...]]] = [
    ("softmax", (x(MANY, 0),)),
    ("softmax", (x(0, MANY),)),
    ("softmax", (x(2**20, 2**20, 0, dtype=torch.bfloat16),)),
    ("gelu", (x(MANY, 0),)),
    ("rms_norm", (x(MANY, 0), x(0))),
    ("layer_norm", (x(MANY, 0), x(0), x(0))),
    ("add_rms_norm", (x(MANY, 0), x(MANY, 0), x(0))),
    ("silu_and_mul", (x(MANY, 0),)),
    ("add_rms_norm_int8", (x(0, 9), x(0, 9), x(9))),
    ("add_rms_norm_fp8", (x(0, 5), x(0, 5), x(5))),
    ("gelu_and_mul", (x(MANY, 0),)),
    (
        "rope_and_cache",
        (
            *(x(1, heads, 0) for heads in (MANY, 1, 1)),
            *(x(2, 4, 1, 0) for _ in range(2)),
            torch.zeros(1, dtype=torch.int64),
            x(3, 0),
            torch.zeros(1, dtype=torch.int64),
        ),
    ),
    ("embedding", (torch.arange(3), x(MANY, 0))),
    ("embedding", (torch.empty(0, MANY, dtype=torch.int64), x(5, 2))),
    ("copy_blocks", (x(MANY, 4, 0, 8), x(MANY, 4, 0, 8), torch.tensor([[3, 2]]))),
    ("sample", (x(0, 2**31 - 1), torch.empty(0, dtype=torch.int64))),
    ("silu_mul", (x(MANY, 0), x(MANY, 0))),
    ("rope", (x(1, MANY, 5, 0), x(5, 0), x(5, 0))),
    ("rope", (x(1, 5, MANY, 0), x(MANY, 0), x(MANY, 0))),
    ("matmul", (x(MANY, 0), x(0, 0))),
    ("matmul", (x(MANY, 4, 0), x(MANY, 0, 0))),
    ("scaled_matmul", (x(MANY, 0, dtype=e4m3), x(0, 0, dtype=e4m3).t(), x(1), x(1))),
    ("quantized_matmul", (x(MANY, 0), torch.empty(0, 0, 4, 64, dtype=torch.int32), x(0, 1, 64), x(0, 0, 64))),
    ("mha", (x(1, MANY, 3, 0), x(1, MANY, 5, 0), x(1, MANY, 5, 0))),
    ("mha", (x(1, 1, MANY, 0), x(1, 1, 5, 0), x(1, 1, 5, 0))),
    ("mha", (x(1, 2, 0, 64), x(1, 2, 300, 64), x(1, 2, 300, 64), x(2, 0, 300))),
]


def test_every_op_is_called() -> None:
    assert {op for op, _ in CALLS} == set(OPS)


@pytest.mark.parametrize(("op", "args"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_calls_of_many_rows_without_columns_return_at_once(op: str, args: tuple[torch.Tensor, ...]) -> None:
    packet = getattr(torch.ops.kernelpack, op)
    results = results_of(packet(*args))
    assert all(result.numel() == 0 for result in results)
    if has_out(op):
        (result,) = results
        out = torch.empty_like(result)
        packet.out(*args, out=out)
        assert out.shape == result.shape


@pytest.mark.parametrize(("op", "args"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_so_do_ops_in_development(op: str, args: tuple[torch.Tensor, ...]) -> None:
    assert all(result.numel() == 0 for result in results_of(getattr(module_of(op), op)(*args)))
