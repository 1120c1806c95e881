"""sample: a token for each row of logits, the largest or drawn at random, with what engines let a request ask for."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.knobs import DEBUG

from ._rows import DTYPES, check_contiguous
from ._sampling import CHUNK, GROUP, INFINITY, Row, bound_of_min_p, draw, draw_first, places_in, weigh_share
from ._sampling_settings import Choice, Penalties, check_settings, is_drawn, matrix, penalized, setting, setting_of

RANGES = {
    "dtypes": ("float32", "float16", "bfloat16"),
    "columns": (1, 2**31 - 1),
}


class Scratch(NamedTuple):
    """What is kept of rows: values as they are drawn from; of each group the largest of these and its place in the group, where rows that
    are drawn from have a list of groups; the largest logit and a sum of exponentials; room for a sum. And of rows that are drawn from:
    the place that is drawn first, and the weight of all."""

    values: tl.tensor
    peaks: tl.tensor
    places: tl.tensor
    logit_peaks: tl.tensor
    logit_sums: tl.tensor
    sums: tl.tensor
    chosen: tl.tensor
    totals: tl.tensor


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
def values_of(scratch, row, sizes):
    """Returns where a row's values begin. New tensors begin at multiples of 64 bytes."""
    return tl.multiple_of(scratch.values, 16) + row * sizes.groups * GROUP


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
        inside = places < tl.minimum(sizes.columns - start, GROUPS * GROUP).to(tl.int32)  # divisible as columns are
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
            values = values_of(scratch, row, sizes)
            tl.store(values + start + places, value, mask=present[:, None])
        else:
            place = tl.min(tl.where(value == peak[:, None], tl.arange(0, GROUP)[None, :], GROUP), axis=1)
            tl.store(scratch.places + target, place, mask=present)
        if sizes.logged:
            logit_peak = tl.max(logit, axis=1)
            shift = tl.where(logit_peak == -INFINITY, 0.0, logit_peak)
            power = tl.exp(logit - shift[:, None])
            tl.store(scratch.logit_peaks + target, logit_peak, mask=present)
            tl.store(scratch.logit_sums + target, tl.sum(power, axis=1), mask=present)


@kp.jit
def peak_of(peaks, groups):
    """Returns the largest of a row's groups' largest values."""
    largest = tl.full([CHUNK], -INFINITY, tl.float32)
    for begin in range(0, groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        largest = tl.maximum(largest, tl.load(peaks + group, mask=group < groups, other=-INFINITY))
    return tl.max(largest, axis=0)


@kp.jit
def first_group_of(peak, peaks, groups):
    """Returns the first group whose largest value that is."""
    first = tl.full([CHUNK], 2**31 - 1, tl.int32)
    for begin in range(0, groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        value = tl.load(peaks + group, mask=group < groups, other=float("nan"))
        first = tl.minimum(first, tl.where(value == peak, group, 2**31 - 1))
    return tl.min(first, axis=0)


@kp.jit
def log_probability(logit, peaks, sums, groups):
    """Returns a logit less the logarithm of the sum of exponentials of its row."""
    peak = peak_of(peaks, groups)
    total = tl.zeros([CHUNK], tl.float32)
    for begin in range(0, groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        power = tl.exp(tl.load(peaks + group, mask=group < groups, other=-INFINITY) - peak)
        total += power * tl.load(sums + group, mask=group < groups, other=0.0)
    return logit - peak - tl.log(tl.sum(total, axis=0))


@kp.jit
def row_of(scratch, at, sizes, peak):
    """Returns a row as it is drawn from."""
    own = at * sizes.groups
    return Row(
        values_of(scratch, at, sizes), scratch.peaks + own, scratch.places + own, scratch.sums + own, sizes.columns, sizes.groups, peak
    )  # fmt: skip


@kp.jit
def is_weighed(choice, at, columns):
    """Returns whether many programs weigh a row that is drawn from: top-k keeps all of it."""
    top_k = setting_of(choice.top_k, at, 0)
    return is_drawn(choice, at) & ((top_k <= 0) | (top_k >= columns))


@kp.jit
def weigh_kernel(choice, scratch, sizes, AGAIN: tl.constexpr, GROUPS: tl.constexpr):
    """Leaves the weights of a program's groups of a row: of all that min-p keeps, or, AGAIN, of all before the place that is drawn."""
    at = (tl.program_id(0) // sizes.programs).to(tl.int64)
    first = tl.program_id(0) % sizes.programs * sizes.per_program
    wanted = is_weighed(choice, at, sizes.columns)
    if AGAIN:
        wanted &= setting_of(choice.top_p, at, 1.0) < 1.0
    if wanted:
        peak = peak_of(scratch.peaks + at * sizes.groups, sizes.groups)
        if (peak > -INFINITY) & (peak < INFINITY):
            row = row_of(scratch, at, sizes, peak)
            bound, last = bound_of_min_p(row, setting_of(choice.min_p, at, 0.0)), sizes.columns
            if AGAIN:
                place = tl.load(scratch.chosen + at)
                bound, last = tl.load(row.values + place), place - 1
            weigh_share(row, first, tl.minimum(first + sizes.per_program, sizes.groups), bound, last, GROUPS)


@kp.jit
def draw_first_kernel(choice, scratch, sizes):
    """Draws a place of a row, and leaves it: weights before it say whether top-p keeps it."""
    at = tl.program_id(0).to(tl.int64)
    if is_weighed(choice, at, sizes.columns):
        peak = peak_of(scratch.peaks + at * sizes.groups, sizes.groups)
        if (peak > -INFINITY) & (peak < INFINITY):
            row = row_of(scratch, at, sizes, peak)
            place, total = draw_first(
                row, setting_of(choice.seeds, at, 0), setting_of(choice.positions, at, 0), setting_of(choice.min_p, at, 0.0)
            )  # fmt: skip
            tl.store(scratch.chosen + at, place)
            tl.store(scratch.totals + at, total)


@kp.jit
def draw_kernel(
    logits, penalties, choice, scratch, sizes, tokens, logged,
    GROUPS: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Chooses a row's token."""
    at = tl.program_id(0).to(tl.int64)
    if CHECKED:
        check_settings(choice, penalties, at)
    own = at * sizes.groups
    peak = peak_of(scratch.peaks + own, sizes.groups)
    token = tl.full([], -1, tl.int64)
    if (peak > -INFINITY) & (peak < INFINITY):
        if is_drawn(choice, at):
            place, total = token, tl.full([], 0, tl.int64)
            if (choice.top_p.given != 0) & is_weighed(choice, at, sizes.columns):
                place, total = tl.load(scratch.chosen + at), tl.load(scratch.totals + at)
            token = draw(
                row_of(scratch, at, sizes, peak), setting_of(choice.seeds, at, 0), setting_of(choice.positions, at, 0),
                setting_of(choice.top_k, at, 0), setting_of(choice.top_p, at, 1.0), setting_of(choice.min_p, at, 0.0),
                place, total, GROUPS,
            )  # fmt: skip
        else:
            group = first_group_of(peak, scratch.peaks + own, sizes.groups)
            token = group.to(tl.int64) * GROUP + tl.load(scratch.places + own + group)
    tl.store(tokens + at, token)
    if sizes.logged:
        logit = tl.load(logits + at * sizes.stride + token, mask=token >= 0, other=float("nan")).to(tl.float32)
        result = log_probability(logit, scratch.logit_peaks + own, scratch.logit_sums + own, sizes.groups)
        tl.store(logged + at, result)


def config(point):
    """Products and sums are rounded apart, so that all passes over a row find the same weights."""
    cpu = point.target.backend == "cpu"
    if point.kernel == "draw_kernel":
        blocks = {"GROUPS": 1, "CHECKED": True} if cpu else {"GROUPS": 32, "CHECKED": DEBUG.is_on()}
        return kp.Config(blocks, num_warps=16, specialize=False)
    if point.kernel == "draw_first_kernel":
        return kp.Config({}, num_warps=16, specialize=False)
    return kp.Config({"GROUPS": 1 if cpu else 8}, num_warps=4)


@kp.op(
    "sample(Tensor logits, Tensor? seeds=None, *, Tensor? positions=None, Tensor? temperature=None, Tensor? top_k=None, "
    "Tensor? top_p=None, Tensor? min_p=None, Tensor? bias=None, Tensor? prompt_mask=None, Tensor? output_counts=None, "
    "Tensor? repetition_penalty=None, Tensor? presence_penalty=None, Tensor? frequency_penalty=None, bool log_probabilities=False) "
    "-> (Tensor tokens, Tensor logged)",
    variants={
        "logits": DTYPES,
        "seeds": kp.optional(tl.int64),
        "positions": kp.optional(tl.int64),
        "temperature": kp.optional(tl.float32),
        "top_k": kp.optional(tl.int64),
        "top_p": kp.optional(tl.float32),
        "min_p": kp.optional(tl.float32),
        "bias": [None, tl.float32],
        "prompt_mask": [None, tl.int1],
        "output_counts": [None, tl.int32],
        "repetition_penalty": kp.optional(tl.float32),
        "presence_penalty": kp.optional(tl.float32),
        "frequency_penalty": kp.optional(tl.float32),
        "EXTRAS": (False, True),
        "AGAIN": (False, True),
    },
    configs={"": config},
    specialize=[kp.aligned("logits", divisible=("sizes.stride", "sizes.columns"))],
)
def sample(
    logits, seeds, positions, temperature, top_k, top_p, min_p, bias, prompt_mask, output_counts,
    repetition_penalty, presence_penalty, frequency_penalty, log_probabilities,
):  # fmt: skip
    """Returns a token for each row of `logits` [rows, columns]: `tokens` [rows], int64. With `log_probabilities`, `logged` [rows], float32,
    has the tokens' log_softmax of the logits as they are given; else it has no elements.

    All other arguments are optional. Those that say one thing of a row are [rows], float32 where nothing else is said; those that say
    something of each logit are [rows, columns]. Their order is that of vLLM's sampler:

    1. `bias` is added; -inf forbids a token.
    2. A token of the prompt (`prompt_mask`, bool) or of the output (`output_counts`, int32: how often it is there) has its logit divided
       by `repetition_penalty` if it is above 0, else multiplied by it. `frequency_penalty` times its count in the output is subtracted,
       and `presence_penalty`, if it is there at all.
    3. A row without a seed, or whose `temperature` is below 1e-5, takes its largest logit; of equal ones the first. Others are divided by
       the temperature.
    4. `min_p` keeps tokens of at least that part of the largest probability: from its logarithm, in float32, below the largest logit on.
    5. `top_k`, int64, keeps as many; 0, less, or more than there are: all.
    6. `top_p` keeps the fewest whose probabilities, of what is kept so far, sum up to at least that; one is always kept.
    7. A token is drawn from what is kept.

    Tokens are ordered by logits, largest first, and equal ones by their index. What top-k and top-p keep is a beginning of that order.
    A weight is exp(logit - largest), computed in float32, as a multiple of 2^-30: below half of that a token is never drawn. Sums of
    weights are exact. A token is kept by top-p if what comes before it weighs less than top_p * (all that is kept so far), computed in
    float64. It is drawn with a probability of its weight over that of all that are kept.

    `seeds`, int64, and `positions`, int64, 0 if there are none, choose the random numbers: Philox with 10 rounds (Salmon et al., SC 2011),
    with the seed as key; counters are the position's low and high word and the attempt. So a row's token depends on its own logits and
    settings alone, and has the same bits whatever else is in the batch. Rejecting what top-p does not keep, in place of sorting, follows
    rejection samplers (FlashInfer); here the order of equal logits counts too.

    Logits need not be normalised. A row that has NaN or +inf, or nothing but -inf, after step 3, has no distribution: its token is -1 and
    its log-probability NaN. On CPUs these are errors: a temperature that is negative or not finite, top_p outside of (0, 1], min_p outside
    of [0, 1], a repetition_penalty that is not finite or not above 0. On GPUs they are checked in kernels that were compiled with
    KERNELPACK_DEBUG=1; else a temperature that is negative or NaN means the largest logit, top_p up to 0 or min_p above 1 keep one token,
    and others that lie outside change nothing or give -1.
    """
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
    chosen = kp.empty((drawn,), tl.int64, logits.device)
    totals = kp.empty((drawn,), tl.int64, logits.device)
    scratch = Scratch(values, peaks, places, logit_peaks, logit_sums, sums, chosen, totals)
    per_program = 8 if logits.is_cuda else 64
    programs = kp.cdiv(groups, per_program)
    sizes = Sizes(columns, groups, logits.stride(0), programs, per_program, log_probabilities)
    prepare_kernel[(rows * programs,)](
        logits, matrix(bias, "bias", logits, peaks), matrix(prompt_mask, "prompt_mask", logits, nobody),
        matrix(output_counts, "output_counts", logits, places), penalties, choice, scratch, sizes,
        EXTRAS=bias is not None or prompt_mask is not None or output_counts is not None, enable_fp_fusion=False,
    )  # fmt: skip
    if seeds is not None:
        weigh_kernel[(rows * programs,)](choice, scratch, sizes, AGAIN=False, enable_fp_fusion=False)
        if top_p is not None:
            draw_first_kernel[(rows,)](choice, scratch, sizes, enable_fp_fusion=False)
            weigh_kernel[(rows * programs,)](choice, scratch, sizes, AGAIN=True, enable_fp_fusion=False)
    draw_kernel[(rows,)](logits, penalties, choice, scratch, sizes, tokens, logged, enable_fp_fusion=False)
    return tokens, logged


def reference(
    logits, seeds=None, *, positions=None, temperature=None, top_k=None, top_p=None, min_p=None, bias=None, prompt_mask=None,
    output_counts=None, repetition_penalty=None, presence_penalty=None, frequency_penalty=None, log_probabilities=False,
):  # fmt: skip
    """The same with torch's stable sort. Tokens are chosen in float32, log-probabilities have logits' dtype, or float32 if that is
    shorter."""
    import torch  # builds do without it

    rows, columns = logits.shape

    def column(given, neutral, dtype=torch.float32):
        return torch.full((rows, 1), neutral, dtype=dtype, device=logits.device) if given is None else given[:, None]

    value = logits.float()
    if bias is not None:
        value = value + bias
    counts = torch.zeros(rows, columns, dtype=torch.int32, device=value.device) if output_counts is None else output_counts
    seen = counts > 0 if prompt_mask is None else (counts > 0) | prompt_mask
    repetition = column(repetition_penalty, 1.0)
    value = torch.where(seen, torch.where(value > 0, value / repetition, value * repetition), value)
    value = value - column(frequency_penalty, 0.0) * counts
    value = value - torch.where(counts > 0, column(presence_penalty, 0.0), 0.0)
    heat = column(temperature, 1.0)
    drawn = (heat >= 1e-5) & (seeds is not None)
    value = value / torch.where(drawn, heat, 1.0)

    peak, largest = value.max(-1, keepdim=True)
    weights = (torch.exp(value - peak) * 2.0**30 + 0.5).long()
    order = value.argsort(dim=-1, descending=True, stable=True)
    rank = order.argsort(-1)
    allowed = column(top_k, 0, torch.int64)
    kept = (allowed <= 0) | (rank < allowed)
    kept = kept & (value >= peak + torch.log(column(min_p, 0.0)))
    weights = torch.where(kept, weights, 0)
    before = weights.gather(-1, order).cumsum(-1).gather(-1, rank) - weights
    enough = column(top_p, 1.0).double() * weights.sum(-1, keepdim=True)
    tokens = torch.where(drawn, -1, largest).squeeze(-1)
    for row in drawn.squeeze(-1).nonzero().flatten().tolist():
        if peak[row].isfinite():
            position = 0 if positions is None else int(positions[row])
            top = rank[row] if top_p is not None and top_p[row] < 1 else None
            tokens[row] = _drawn(weights[row], before[row], top, float(enough[row]), int(seeds[row]), position)
    tokens = torch.where(peak.isfinite().squeeze(-1), tokens, -1)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logged = wide.log_softmax(-1).gather(-1, tokens.clamp(min=0)[:, None]).squeeze(-1)
    logged = torch.where(tokens >= 0, logged, float("nan"))
    return tokens, logged if log_probabilities else logged[:0]


def _drawn(weights, before, rank, enough, seed, position):
    """Draws from a row until top-p keeps what was drawn; `rank` is None if it keeps all."""
    import torch

    attempt = 0
    while True:
        sums = weights.cumsum(-1)
        random = _philox(seed, position, attempt) * int(sums[-1]) >> 64
        place = int(torch.searchsorted(sums, random, right=True))
        if rank is None or before[place] == 0 or float(before[place]) < enough:
            return place
        weights = torch.where(rank < rank[place], weights, 0)
        attempt += 1


def _philox(seed, position, attempt):
    """Returns 64 random bits: the first two words of Philox 4x32-10."""
    mask = 2**32 - 1
    a, b, c, d = position & mask, position >> 32 & mask, attempt, 0
    low, high = seed & mask, seed >> 32 & mask
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = second >> 32 ^ b ^ low, second & mask, first >> 32 ^ d ^ high, first & mask
        low, high = low + 0x9E3779B9 & mask, high + 0xBB67AE85 & mask
    return a << 32 | b
