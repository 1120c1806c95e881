"""What sample is told of its rows: tensors that may be there or not, their checks, and what they do to logits."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

from ._rows import check_contiguous
from ._sampling import INFINITY

GREEDY = tl.constexpr(1e-5)
"""Below this temperature a row takes its largest logit. vLLM has the same bound."""


class Setting(NamedTuple):
    """A value for each row, if it is `given`; else another tensor, which is not read."""

    data: tl.tensor
    given: int


class Matrix(NamedTuple):
    """A value for each logit, rows `stride` elements apart, if it is `given`; else another tensor, which is not read."""

    data: tl.tensor
    stride: tl.int64
    given: int


class Penalties(NamedTuple):
    """What tokens of a row's prompt and output lose."""

    repetition: Setting
    presence: Setting
    frequency: Setting


class Choice(NamedTuple):
    """What a row is drawn by."""

    seeds: Setting
    positions: Setting
    temperature: Setting
    top_k: Setting
    top_p: Setting
    min_p: Setting


@kp.jit
def setting_of(setting, row, neutral):
    """Returns a row's value, or what changes nothing."""
    value = tl.full([], neutral, setting.data.dtype.element_ty)
    if setting.given != 0:
        value = tl.load(setting.data + row)
    return value


@kp.jit
def is_drawn(choice, row):
    """Returns whether a row is drawn at random: it has a seed, and its temperature is not too low."""
    return (choice.seeds.given != 0) & (setting_of(choice.temperature, row, 1.0) >= GREEDY)


@kp.jit
def penalized(value, row, start, places, inside, bias, prompt, output, penalties):
    """Returns logits with their bias and without what tokens of prompt and output lose."""
    value += tl.load(bias.data + row * bias.stride + start + places, mask=inside & (bias.given != 0), other=0.0)
    count = tl.load(output.data + row * output.stride + start + places, mask=inside & (output.given != 0), other=0)
    asked = tl.load(prompt.data + row * prompt.stride + start + places, mask=inside & (prompt.given != 0), other=0) != 0
    repetition = setting_of(penalties.repetition, row, 1.0)
    repeated = tl.where(value > 0.0, tl.div_rn(value, repetition), value * repetition)
    value = tl.where(asked | (count > 0), repeated, value)
    value -= setting_of(penalties.frequency, row, 0.0) * count.to(tl.float32)
    return value - tl.where(count > 0, setting_of(penalties.presence, row, 0.0), 0.0)


@kp.jit(debug=True)
def check_settings(choice, penalties, row):
    """Ends the program where a row's setting is none."""
    temperature = setting_of(choice.temperature, row, 1.0)
    fits = (temperature >= 0.0) & (temperature < INFINITY)
    tl.device_assert(fits, "sample: temperature: a row's is negative or not finite, expected 0 or more")
    top_p = setting_of(choice.top_p, row, 1.0)
    tl.device_assert((top_p > 0.0) & (top_p <= 1.0), "sample: top_p: a row's is 0 or less, or above 1, expected a part of 1")
    min_p = setting_of(choice.min_p, row, 0.0)
    tl.device_assert((min_p >= 0.0) & (min_p <= 1.0), "sample: min_p: a row's is negative or above 1, expected 0 to 1")
    factor = setting_of(penalties.repetition, row, 1.0)
    fits = (factor > 0.0) & (factor < INFINITY)
    tl.device_assert(fits, "sample: repetition_penalty: a row's is 0 or less, or not finite, expected a positive number")


def setting(x, name, rows, other):
    """A host function's check of a tensor with a value for each row. Returns it as a Setting: `other` where there is none."""
    if x is not None:
        kp.check(
            x.dim() == 1 and x.shape[0] == rows,
            f"{name} has shape {x.shape}, expected ({rows},): one value for each row of logits",
        )
        kp.check(
            x.is_contiguous(),
            f"{name} must be contiguous, its stride is {x.stride()}\n  to fix: call .contiguous() on it before the op",
        )
    return Setting(other if x is None else x, x is not None)


def matrix(x, name, logits, other):
    """A host function's check of a tensor with a value for each logit. Returns it as a Matrix: `other` where there is none."""
    stride = 0
    if x is not None:
        kp.check(x.shape == logits.shape, f"{name} has shape {x.shape}, logits has {logits.shape}")
        check_contiguous(x, name)
        stride = x.stride(0)
    return Matrix(other if x is None else x, stride, x is not None)
