"""sample: a token for each row of logits, the largest or drawn at random, with what engines let a request ask for."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.knobs import DEBUG

from ._rows import DTYPES, check_contiguous
from ._sampling import CHUNK, GROUP, INFINITY, LOG2E, Row, draw, place_in, places_in

RANGES = {
    "dtypes": ("float32", "float16", "bfloat16"),
    "columns": (1, 2**31 - 1),
    "settings": ("temperature", "top_k", "top_p", "min_p", "penalties", "bias", "seeds"),
}

LN2 = tl.constexpr(0.6931471805599453)


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


class Scratch(NamedTuple):
    """What is kept of rows: values as they are drawn from; of each group the largest of these and its place in the group, the largest
    logit and a sum of exponentials, room for a sum."""

    values: tl.tensor
    peaks: tl.tensor
    places: tl.tensor
    logit_peaks: tl.tensor
    logit_sums: tl.tensor
    sums: tl.tensor


class Sizes(NamedTuple):
    """How long rows are, in elements and in groups; how far apart those of logits are; how many programs prepare a row, and how many groups
    each takes; whether log-probabilities are wanted."""

    columns: tl.int64
    groups: int
    stride: tl.int64
    programs: int
    per_program: int
    logged: int


@kp.jit
def setting_of(setting, row, neutral):
    """Returns a row's value, or what changes nothing."""
    return tl.load(setting.data + row, mask=setting.given != 0, other=neutral)


@kp.jit
def is_drawn(choice, row):
    """Returns whether a row is drawn at random: it has a seed, and its temperature is above 0."""
    return (choice.seeds.given != 0) & (setting_of(choice.temperature, row, 1.0) > 0.0)


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


@kp.jit
def prepare_kernel(
    logits, bias, prompt, output, penalties, choice, scratch, sizes,
    GROUPS: tl.constexpr, EXTRAS: tl.constexpr,
):  # fmt: skip
    """Leaves in the scratch what a program's groups of a row are drawn from, and of each group what the draw begins with."""
    row = (tl.program_id(0) // sizes.programs).to(tl.int64)
    first = tl.program_id(0) % sizes.programs * sizes.per_program
    drawn = is_drawn(choice, row)
    temperature = tl.where(drawn, setting_of(choice.temperature, row, 1.0), 1.0)
    source = logits + row * sizes.stride
    for begin in range(first, tl.minimum(first + sizes.per_program, sizes.groups), GROUPS):
        group = begin + tl.arange(0, GROUPS)
        target = row * sizes.groups + group
        present = group < sizes.groups
        start, places = begin.to(tl.int64) * GROUP, places_in(GROUPS)
        inside = places < place_in(sizes.columns, begin, GROUPS)
        logit = tl.load(source + start + places, mask=inside, other=-INFINITY).to(tl.float32)
        value = logit
        if EXTRAS:
            value = penalized(value, row, start, places, inside, bias, prompt, output, penalties)
            value = tl.where(inside, value, -INFINITY)
        value = tl.div_rn(value, temperature)
        value = tl.where(value < INFINITY, value, INFINITY)  # so that NaN is seen
        peak = tl.max(value, axis=1)
        tl.store(scratch.peaks + target, peak, mask=present)
        if drawn:
            values = tl.multiple_of(scratch.values, 16) + row * sizes.groups * GROUP  # new tensors begin at multiples of 64 bytes
            tl.store(values + start + places, value, mask=present[:, None])
        else:
            place = tl.min(tl.where(value == peak[:, None], tl.arange(0, GROUP)[None, :], GROUP), axis=1)
            tl.store(scratch.places + target, place, mask=present)
        if sizes.logged:
            logit_peak = tl.max(logit, axis=1)
            shift = tl.where(logit_peak == -INFINITY, 0.0, logit_peak)
            power = tl.exp2((logit - shift[:, None]) * LOG2E)
            tl.store(scratch.logit_peaks + target, logit_peak, mask=present)
            tl.store(scratch.logit_sums + target, tl.sum(power, axis=1), mask=present)


@kp.jit
def largest_of(peaks, groups):
    """Returns the largest of a row's groups' largest values, and the first group that has it."""
    largest = tl.full([CHUNK], -INFINITY, tl.float32)
    for begin in range(0, groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        largest = tl.maximum(largest, tl.load(peaks + group, mask=group < groups, other=-INFINITY))
    peak = tl.max(largest, axis=0)
    first = tl.full([CHUNK], 2**31 - 1, tl.int32)
    for begin in range(0, groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        value = tl.load(peaks + group, mask=group < groups, other=float("nan"))
        first = tl.minimum(first, tl.where(value == peak, group, 2**31 - 1))
    return peak, tl.min(first, axis=0)


@kp.jit
def log_sum_of(peaks, sums, groups):
    """Returns the logarithm of the sum of exponentials of a row of logits."""
    peak, _ = largest_of(peaks, groups)
    total = tl.zeros([CHUNK], tl.float32)
    for begin in range(0, groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        power = tl.exp2((tl.load(peaks + group, mask=group < groups, other=-INFINITY) - peak) * LOG2E)
        total += power * tl.load(sums + group, mask=group < groups, other=0.0)
    return peak + tl.log2(tl.sum(total, axis=0)) * LN2


@kp.jit(debug=True)
def check_settings(choice, penalties, row):
    """Ends the program where a row's setting is none."""
    temperature = setting_of(choice.temperature, row, 1.0)
    tl.device_assert(
        (temperature >= 0.0) & (temperature < INFINITY), "sample: temperature: a row's is negative or not finite, expected 0 or more"
    )
    top_p = setting_of(choice.top_p, row, 1.0)
    tl.device_assert((top_p > 0.0) & (top_p <= 1.0), "sample: top_p: a row's lies outside of what is expected: above 0, up to 1")
    min_p = setting_of(choice.min_p, row, 0.0)
    tl.device_assert((min_p >= 0.0) & (min_p <= 1.0), "sample: min_p: a row's lies outside of what is expected: 0 to 1")
    repetition = setting_of(penalties.repetition, row, 1.0)
    tl.device_assert(
        (repetition > 0.0) & (repetition < INFINITY),
        "sample: repetition_penalty: a row's is not finite or not above 0, as is expected",
    )


@kp.jit
def draw_kernel(
    logits, penalties, choice, scratch, sizes, tokens, log_probabilities,
    GROUPS: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Chooses a row's token."""
    at = tl.program_id(0).to(tl.int64)
    if CHECKED:
        check_settings(choice, penalties, at)
    own = at * sizes.groups
    peak, group = largest_of(scratch.peaks + own, sizes.groups)
    token = tl.full([], -1, tl.int64)
    if (peak > -INFINITY) & (peak < INFINITY):
        if is_drawn(choice, at):
            values = tl.multiple_of(scratch.values, 16) + own * GROUP
            row = Row(values, scratch.peaks + own, scratch.sums + own, sizes.columns, sizes.groups, peak)
            token = draw(
                row, setting_of(choice.seeds, at, 0), setting_of(choice.positions, at, 0), setting_of(choice.top_k, at, 0),
                setting_of(choice.top_p, at, 1.0), setting_of(choice.min_p, at, 0.0), GROUPS,
            )  # fmt: skip
        else:
            token = group.to(tl.int64) * GROUP + tl.load(scratch.places + own + group)
    tl.store(tokens + at, token)
    if sizes.logged:
        logit = tl.load(logits + at * sizes.stride + token, mask=token >= 0, other=float("nan")).to(tl.float32)
        log_sum = log_sum_of(scratch.logit_peaks + own, scratch.logit_sums + own, sizes.groups)
        tl.store(log_probabilities + at, logit - log_sum)


def config(point):
    """Products and sums are rounded apart, so that all passes over a row find the same weights."""
    cpu = point.target.backend == "cpu"
    if point.kernel == "draw_kernel":
        blocks = {"GROUPS": 1, "CHECKED": True} if cpu else {"GROUPS": 32, "CHECKED": DEBUG.is_on()}
        return kp.Config(blocks, num_warps=16, specialize=False)
    return kp.Config({"GROUPS": 1 if cpu else 8}, num_warps=4)


def setting(x, name, rows, other):
    """A host function's check of a tensor with a value for each row. Returns it as a Setting: `other` where there is none."""
    if x is not None:
        kp.check(x.dim() == 1 and x.shape[0] == rows, f"{name} has shape {x.shape}, expected ({rows},): one value for each row of logits")
        kp.check(x.is_contiguous(), f"{name} must be contiguous, its stride is {x.stride()}\n  to fix: call .contiguous() on it before the op")
    return Setting(other if x is None else x, x is not None)


def matrix(x, name, logits, other):
    """A host function's check of a tensor with a value for each logit. Returns it as a Matrix: `other` where there is none."""
    stride = 0
    if x is not None:
        kp.check(x.shape == logits.shape, f"{name} has shape {x.shape}, logits has {logits.shape}")
        check_contiguous(x, name)
        stride = x.stride(0)
    return Matrix(other if x is None else x, stride, x is not None)


@kp.op(
    "sample(Tensor logits, Tensor? seeds=None, *, Tensor? positions=None, Tensor? temperature=None, Tensor? top_k=None, "
    "Tensor? top_p=None, Tensor? min_p=None, Tensor? bias=None, Tensor? prompt_mask=None, Tensor? output_counts=None, "
    "Tensor? repetition_penalty=None, Tensor? presence_penalty=None, Tensor? frequency_penalty=None, bool log_probabilities=False) "
    "-> (Tensor tokens, Tensor logged)",
    variants={
        "logits": DTYPES,
        "seeds": [None, tl.int64],
        "positions": [None, tl.int64],
        "temperature": [None, tl.float32],
        "top_k": [None, tl.int64],
        "top_p": [None, tl.float32],
        "min_p": [None, tl.float32],
        "bias": [None, tl.float32],
        "prompt_mask": [None, tl.int1],
        "output_counts": [None, tl.int32],
        "repetition_penalty": [None, tl.float32],
        "presence_penalty": [None, tl.float32],
        "frequency_penalty": [None, tl.float32],
        "EXTRAS": (False, True),
    },
    configs={"": config},
    specialize=[kp.aligned("logits", divisible=("sizes.stride", "sizes.columns"))],
)
def sample(
    logits, seeds, positions, temperature, top_k, top_p, min_p, bias, prompt_mask, output_counts,
    repetition_penalty, presence_penalty, frequency_penalty, log_probabilities,
):  # fmt: skip
    """Returns a token."""
    kp.check(logits.dim() == 2, f"logits must have 2 dimensions, it has shape {logits.shape}")
    check_contiguous(logits, "logits")
    rows, columns = logits.shape
    kp.check(columns > 0 or rows == 0, f"logits has shape {logits.shape}, expected at least one column")
    groups = kp.cdiv(columns, 256)
    tokens = kp.empty((rows,), tl.int64, logits.device)
    logged = kp.empty((rows if log_probabilities else 0,), tl.float32, logits.device)
    drawn = rows if seeds is not None else 0
    values = kp.empty((drawn, groups * 256), tl.float32, logits.device)
    sums = kp.empty((drawn, groups), tl.int64, logits.device)
    peaks = kp.empty((rows, groups), tl.float32, logits.device)
    places = kp.empty((rows, groups), tl.int32, logits.device)
    logit_peaks = kp.empty((logged.shape[0], groups), tl.float32, logits.device)
    logit_sums = kp.empty((logged.shape[0], groups), tl.float32, logits.device)
    nobody = kp.empty((0,), tl.int1, logits.device)
    penalties = Penalties(
        setting(repetition_penalty, "repetition_penalty", rows, peaks),
        setting(presence_penalty, "presence_penalty", rows, peaks),
        setting(frequency_penalty, "frequency_penalty", rows, peaks),
    )
    choice = Choice(
        setting(seeds, "seeds", rows, tokens),
        setting(positions, "positions", rows, tokens),
        setting(temperature, "temperature", rows, peaks),
        setting(top_k, "top_k", rows, tokens),
        setting(top_p, "top_p", rows, peaks),
        setting(min_p, "min_p", rows, peaks),
    )
    scratch = Scratch(values, peaks, places, logit_peaks, logit_sums, sums)
    per_program = 8 if logits.is_cuda else 64
    programs = kp.cdiv(groups, per_program)
    sizes = Sizes(columns, groups, logits.stride(0), programs, per_program, log_probabilities)
    prepare_kernel[(rows * programs,)](
        logits, matrix(bias, "bias", logits, peaks), matrix(prompt_mask, "prompt_mask", logits, nobody),
        matrix(output_counts, "output_counts", logits, places), penalties, choice, scratch, sizes,
        EXTRAS=bias is not None or prompt_mask is not None or output_counts is not None, enable_fp_fusion=False,
    )  # fmt: skip
    draw_kernel[(rows,)](logits, penalties, choice, scratch, sizes, tokens, logged, enable_fp_fusion=False)
    return tokens, logged
