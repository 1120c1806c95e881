"""sample: tokens are as likely as their weights, what is kept is what a stable sort keeps, rows do not depend on each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ops.functional import module_of
from tests.ops.sample_cases import SETTINGS, seeds
from tests.simt.emulated_ops import call

INF, NAN = float("inf"), float("nan")
DRAWS = 20000


def sample(logits: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Returns the tokens alone."""
    tokens: Tensor = torch.ops.kernelpack.sample(logits, *args, **kwargs)[0]
    return tokens


def drawn(logits: Tensor, count: int = DRAWS, **settings: float) -> Tensor:
    """Returns tokens of `count` rows of one row's logits, with seeds from 0 on, and settings that all have."""
    given = {name: torch.full((count,), value) for name, value in settings.items()}
    return sample(logits.expand(count, -1), torch.arange(count), **given)


def kept_by_sorting(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Returns the probability of each token of one row, in float64: what engines do in torch, with a stable sort."""
    values, order = torch.sort(logits.double() / temperature, descending=True, stable=True)
    values[values < values[0] + math.log(max(min_p, 1e-300))] = -INF
    if top_k > 0:
        values[top_k:] = -INF
    sums = values.softmax(-1).cumsum(-1)
    values[1:][sums[:-1] >= top_p] = -INF
    return torch.zeros_like(values).scatter(0, order, values.softmax(-1))


SOME: list[dict[str, Any]] = [
    {}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 7}, {"top_p": 0.6}, {"min_p": 0.15}, {"top_k": 12, "top_p": 0.8},
    {"temperature": 1.5, "top_k": 20, "top_p": 0.7, "min_p": 0.05}, {"top_p": 0.01}, {"top_k": 1},
]  # fmt: skip


@pytest.mark.parametrize("settings", SOME, ids=str)
@pytest.mark.parametrize("columns", [30, 600])
def test_tokens_are_as_likely_as_they_should_be(columns: int, settings: dict[str, Any]) -> None:
    """Chi-square: its mean is the degrees of freedom, its variance twice that. Seeds are fixed."""
    torch.manual_seed(1)
    logits = torch.randn(columns) * 2
    right = kept_by_sorting(logits, **settings) * DRAWS
    counts = torch.bincount(drawn(logits, **settings), minlength=columns).double()
    assert (counts[right == 0] == 0).all()
    often = right >= 5
    groups = [(counts[often], right[often])]
    if right[~often].sum() >= 5:  # the others together
        groups.append((counts[~often].sum()[None], right[~often].sum()[None]))
    seen, expected = (torch.cat(parts) for parts in zip(*groups, strict=True))
    freedom = len(expected) - 1
    assert float(((seen - expected) ** 2 / expected).sum()) <= freedom + 4 * math.sqrt(2 * freedom)


def test_positions_give_other_tokens_that_are_as_likely() -> None:
    torch.manual_seed(1)
    logits = torch.randn(30)
    right = kept_by_sorting(logits) * DRAWS
    tokens = sample(logits.expand(DRAWS, -1), torch.full((DRAWS,), 42), positions=torch.arange(DRAWS) * 2**20)
    counts = torch.bincount(tokens, minlength=30).double()
    assert float(((counts - right) ** 2 / right).sum()) <= 29 + 4 * math.sqrt(58)
    again = sample(logits.expand(2, -1), torch.full((2,), 42), positions=torch.tensor([0, 2**20 * 77]))
    assert torch.equal(again, tokens[[0, 77]])
    assert torch.equal(sample(logits[None], torch.tensor([42])), tokens[:1])  # without positions it is 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("top_k", [0, 1, 2, 9, 40, 299, 300, 400])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.35, 1e-6])
def test_what_is_kept_is_what_a_stable_sort_keeps(top_k: int, top_p: float, dtype: torch.dtype) -> None:
    """Of logits of which many are equal, over two groups of elements: all that is kept comes up, and nothing else."""
    torch.manual_seed(5)
    logits = (torch.randint(0, 4, (300,)).float() / 4).to(dtype)
    right = kept_by_sorting(logits, top_k=top_k, top_p=top_p)
    tokens = drawn(logits, **({"top_k": top_k} if top_k else {}), top_p=top_p)
    assert torch.equal(tokens.unique(), right.nonzero().flatten())


@pytest.mark.parametrize("columns", [5, 256, 1000, 70000])
def test_without_a_seed_or_a_temperature_it_is_the_largest_of_equal_ones_the_first(columns: int) -> None:
    x = torch.randn(7, columns).round()
    right = x.sort(dim=-1, descending=True, stable=True).indices[:, 0]
    assert torch.equal(sample(x), right)
    cold = torch.tensor([0.0, 9e-6, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert torch.equal(sample(x, seeds(7), temperature=cold), right)
    assert torch.equal(sample(x, seeds(7), top_p=torch.full((7,), 1e-9)), right)
    assert torch.equal(sample(x, seeds(7), top_k=torch.ones(7, dtype=torch.int64)), right)


def test_top_k_of_none_or_of_more_than_there_are_keeps_all() -> None:
    x, own = torch.randn(50, 300), seeds(50)
    plain = sample(x, own)
    for k in (0, -1, -(2**63), 300, 301, 2**62):
        assert torch.equal(sample(x, own, top_k=torch.full((50,), k)), plain)


def test_logits_need_not_be_normalised() -> None:
    x, own = torch.randint(-8, 8, (50, 300)).float(), seeds(50)
    assert torch.equal(sample(x + 4096, own), sample(x, own))
    assert torch.equal(sample(x - 1024, own, top_p=torch.full((50,), 0.7)), sample(x, own, top_p=torch.full((50,), 0.7)))


def test_penalties_and_bias_come_in_order() -> None:
    x = torch.tensor([[2.0, -2.0, 1.0, 1.5, 0.25]])
    settings = {
        "bias": torch.tensor([[0.0, 0.0, 0.0, -INF, 0.0]]),
        "prompt_mask": torch.tensor([[True, False, False, False, False]]),
        "output_counts": torch.tensor([[0, 1, 3, 0, 0]], dtype=torch.int32),
    }
    assert sample(x, **settings).tolist() == [0]
    assert sample(x, **settings, repetition_penalty=torch.tensor([4.0])).tolist() == [0]  # 0.5, -8, 0.25, -inf, 0.25
    assert sample(x, **settings, repetition_penalty=torch.tensor([16.0])).tolist() == [4]  # 0.125, -32, 0.0625, -inf, 0.25
    assert sample(x, **settings, frequency_penalty=torch.tensor([-0.5])).tolist() == [2]  # 2, -1.5, 2.5, -inf, 0.25
    assert sample(x, **settings, presence_penalty=torch.tensor([-1.25])).tolist() == [2]  # 2, -0.75, 2.25, -inf, 0.25
    assert sample(x, frequency_penalty=torch.tensor([9.0])).tolist() == [0]  # nothing is in the output


@pytest.mark.parametrize("columns", [100, 5000])
def test_a_row_does_not_depend_on_the_others(columns: int) -> None:
    rows = 67
    x, own = torch.randn(rows, columns) * 3, seeds(rows)
    settings = {name: make(rows, columns) for name, make in SETTINGS.items()}
    tokens, logged = torch.ops.kernelpack.sample(x, own, **settings, log_probabilities=True)
    for chosen in (torch.tensor([0]), torch.tensor([66]), torch.arange(3, 40), torch.randperm(rows)):
        given = {name: value[chosen] for name, value in settings.items()}
        apart, apart_logged = torch.ops.kernelpack.sample(x[chosen], own[chosen], **given, log_probabilities=True)
        assert torch.equal(apart, tokens[chosen])
        assert torch.equal(apart_logged, logged[chosen])


def test_rows_without_a_distribution_say_so() -> None:
    x = torch.randn(8, 700)
    x[0], x[1, 3], x[2, 699], x[3, 300], x[4, :] = -INF, NAN, INF, NAN, -INF
    x[4, 650] = 1.0
    for own in (None, seeds(8)):
        tokens, logged = torch.ops.kernelpack.sample(x, own, log_probabilities=True)
        assert tokens[:5].tolist() == [-1, -1, -1, -1, 650]
        assert logged[:4].isnan().all()
        assert logged[4] == 0
        assert (tokens[5:] >= 0).all()
        assert torch.equal(tokens[5:], sample(x[5:], None if own is None else own[5:]))
    forbidden = torch.zeros(8, 700).index_fill(0, torch.tensor([6]), -INF)
    assert sample(x, bias=forbidden)[6] == -1


def test_one_thread_and_two_give_the_same() -> None:
    x, own, threads = torch.randn(5, 50000), seeds(5), torch.get_num_threads()
    both = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            both.append(torch.ops.kernelpack.sample(x, own, top_p=torch.full((5,), 0.9), log_probabilities=True))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*both, strict=True))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_settings_that_a_gpu_does_not_check_stay_within_the_row(target: str) -> None:
    x, own = torch.randn(5, 300), seeds(5)
    largest = x.argmax(-1)

    def emulated(**settings: Tensor) -> Tensor:
        tokens: Tensor = call(target, module_of("sample").sample, (x, own), settings)[0][0]
        return tokens

    odd = torch.tensor([-1.0, NAN, -INF, -0.0, 1e-30])
    assert torch.equal(emulated(temperature=odd), largest)
    assert torch.equal(emulated(top_p=torch.tensor([0.0, -1.0, -INF, -0.0, 1e-30])), largest)
    plain = sample(x, own)
    assert torch.equal(emulated(top_p=torch.tensor([2.0, NAN, INF, 1.5, 1.0])), plain)
    assert torch.equal(emulated(min_p=torch.tensor([-1.0, NAN, -INF, 0.0, 0.0])), plain)
    assert torch.equal(emulated(min_p=torch.tensor([2.0, INF, 1e30, 1.0, 1.5])), largest)
