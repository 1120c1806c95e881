"""How sample's kernels draw from a row of logits: weights as integers, the bounds of top-k and min-p, the draw."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl

GROUP = tl.constexpr(256)
"""So many neighbouring elements of a row are a group, whose largest element and whose weight are kept."""

CHUNK = tl.constexpr(1024)
"""So many groups are taken at once: those of 262,144 elements."""

UNIT = tl.constexpr(2.0**30)
"""The weight of a row's largest element."""

INFINITY = tl.constexpr(float("inf"))


class Row(NamedTuple):
    """A row as it is drawn from: its values, and -inf up to the end of the last group; of each group the largest value; the numbers of
    groups that are looked at, in order, and their sums of weights; how many values and groups there are; the largest value."""

    values: tl.tensor
    peaks: tl.tensor
    listed: tl.tensor
    sums: tl.tensor
    columns: tl.int64
    groups: int
    peak: tl.float32


@kp.jit
def key_of(value):
    """Returns an integer for a float32, in the same order."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)


@kp.jit
def value_of(key):
    """Returns the float32 of a key."""
    bits = key.to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@kp.jit
def places_in(GROUPS: tl.constexpr):
    """Returns the places [GROUPS, GROUP] of elements, counted from the first."""
    return tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]


@kp.jit
def place_in(place, group, GROUPS: tl.constexpr):
    """Returns a place of a row, counted from the first of a group, as a number of 32 bits; a place outside of GROUPS groups as another
    one outside."""
    return tl.maximum(tl.minimum(place - group.to(tl.int64) * GROUP, GROUPS * GROUP), -1).to(tl.int32)


@kp.jit
def list_groups(row, floor):
    """Leaves, in order, the numbers of the groups that hold something from `floor` on. Returns how many there are."""
    tl.debug_barrier()  # threads may still read the last list
    count = tl.full([], 0, tl.int32)
    for begin in range(0, row.groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        inside = group < row.groups
        wanted = inside & (tl.load(row.peaks + group, mask=inside, other=-INFINITY) >= floor)
        ends = count + tl.cumsum(wanted.to(tl.int32), axis=0)
        tl.store(row.listed + ends - 1, group, mask=wanted)
        count = tl.max(ends, axis=0)
    tl.debug_barrier()
    return count


@kp.jit
def load_groups(row, begin, count, GROUPS: tl.constexpr):
    """Returns the values [GROUPS, GROUP] of groups from the list's entry `begin` on, -inf after its end, and their numbers [GROUPS]."""
    at, places = begin + tl.arange(0, GROUPS), tl.arange(0, GROUP)[None, :]
    group = tl.load(row.listed + at, mask=at < count, other=0)
    if GROUPS == 1:  # then elements lie side by side
        return tl.load(row.values + tl.load(row.listed + begin).to(tl.int64) * GROUP + places), group
    inside = (at < count)[:, None]
    return tl.load(row.values + group.to(tl.int64)[:, None] * GROUP + places, mask=inside, other=-INFINITY), group


# -- top-k ---------------------------------------------------------------------------------------------------------------------


@kp.jit
def count_from(row, count, first, second, third, OF_GROUPS: tl.constexpr, GROUPS: tl.constexpr):
    """Returns how many values of listed groups, or largest values of all groups, are not below each of three."""
    if OF_GROUPS:
        a, b, c = tl.zeros([CHUNK], tl.int32), tl.zeros([CHUNK], tl.int32), tl.zeros([CHUNK], tl.int32)
        for begin in range(0, row.groups, CHUNK):
            group = begin + tl.arange(0, CHUNK)
            value = tl.load(row.peaks + group, mask=group < row.groups, other=float("nan"))
            a += (value >= first).to(tl.int32)
            b += (value >= second).to(tl.int32)
            c += (value >= third).to(tl.int32)
        one, two, three = tl.sum(a, axis=0), tl.sum(b, axis=0), tl.sum(c, axis=0)
    else:
        x, y, z = tl.zeros([GROUPS, GROUP], tl.int32), tl.zeros([GROUPS, GROUP], tl.int32), tl.zeros([GROUPS, GROUP], tl.int32)
        for begin in range(0, count, GROUPS):
            value, _ = load_groups(row, begin, count, GROUPS)
            x += (value >= first).to(tl.int32)
            y += (value >= second).to(tl.int32)
            z += (value >= third).to(tl.int32)
        one, two, three = tl.sum(tl.sum(x, axis=1)), tl.sum(tl.sum(y, axis=1)), tl.sum(tl.sum(z, axis=1))
    return one.to(tl.int64), two.to(tl.int64), three.to(tl.int64)


@kp.jit
def narrow(row, count, k, enough, low, low_count, OF_GROUPS: tl.constexpr, GROUPS: tl.constexpr):
    """Returns the key of a value not above the k-th largest one, of listed groups or of all groups' largest values; how many are not below
    it; and how many are not below the next key.

    `low` is such a key, `low_count` >= k how many are not below it. Each step counts from three keys between the bounds. The last one
    leaves neighbouring keys, or a lower one which at most `enough` >= k values are not below.
    """
    high, high_count = key_of(row.peak) + 1, k * 0
    while (high - low > 1) & (low_count > enough):
        quarter = tl.maximum((high - low) // 4, 1)
        first, second = low + quarter, tl.minimum(low + 2 * quarter, high - 1)
        third = tl.minimum(low + 3 * quarter, high - 1)
        one, two, three = count_from(row, count, value_of(first), value_of(second), value_of(third), OF_GROUPS, GROUPS)
        if three >= k:
            low, low_count = third, three
        elif two >= k:
            low, low_count, high, high_count = second, two, third, three
        elif one >= k:
            low, low_count, high, high_count = first, one, second, two
        else:
            high, high_count = first, one
    return low, low_count, high_count


@kp.jit
def bound_of_top_k(row, k, GROUPS: tl.constexpr):
    """Returns the smallest of the k largest values, 0 < k < columns, and the last place at which it counts among them: equal values count
    in their order.

    Where there are at least k groups, their largest values give a bound to begin with, and few groups reach it.
    """
    floor, none = tl.full([], -INFINITY, tl.float32), tl.full([], 0, tl.int32)
    if k <= row.groups:
        low, _, _ = narrow(row, none, k, 2 * k, key_of(smallest_peak(row)), row.groups.to(tl.int64), True, GROUPS)
        floor = value_of(low)
    count = list_groups(row, floor)
    low, low_count, high_count = narrow(row, count, k, k, key_of(floor), row.columns, False, GROUPS)
    bound, last = value_of(low), row.columns
    if low_count > k:
        weigh(row, count, bound, last, True, GROUPS)
        last = place_of(row, count, k - high_count - 1, bound, last, True)
    return bound, last


@kp.jit
def smallest_peak(row):
    """Returns the smallest of the groups' largest values."""
    smallest = tl.full([CHUNK], INFINITY, tl.float32)
    for begin in range(0, row.groups, CHUNK):
        group = begin + tl.arange(0, CHUNK)
        smallest = tl.minimum(smallest, tl.load(row.peaks + group, mask=group < row.groups, other=INFINITY))
    return tl.min(smallest, axis=0)


# -- weights -------------------------------------------------------------------------------------------------------------------


@kp.jit
def weights_of(value, place, row, bound, last, EQUAL: tl.constexpr):
    """Returns the weights of values, int64: of those that come before others in the order of values, places, up to a bound at place `last`,
    exp(value - peak) in units; of all others 0. EQUAL: 1 for values equal to the bound, instead."""
    if EQUAL:
        return (value == bound).to(tl.int64)
    kept = (value > bound) | ((value == bound) & (place <= last))
    units = (tl.exp(value - row.peak) * UNIT + 0.5).to(tl.int32)
    return tl.where(kept, units, 0).to(tl.int64)


@kp.jit
def sums_of(value, group, row, bound, last, EQUAL: tl.constexpr):
    """Returns the sums of the weights of groups of values."""
    ends = place_in(last, group, 1)[:, None]
    return tl.sum(weights_of(value, tl.arange(0, GROUP)[None, :], row, bound, ends, EQUAL), axis=1)


@kp.jit
def weigh(row, count, bound, last, EQUAL: tl.constexpr, GROUPS: tl.constexpr):
    """Returns the sum of the weights of listed groups, and leaves those of each. Threads that read these later wait here."""
    total = tl.zeros([GROUPS], tl.int64)
    for begin in range(0, count, GROUPS):
        value, group = load_groups(row, begin, count, GROUPS)
        sums = sums_of(value, group, row, bound, last, EQUAL)
        at = begin + tl.arange(0, GROUPS)
        tl.store(row.sums + at, sums, mask=at < count)
        total += sums
    tl.debug_barrier()
    return tl.sum(total, axis=0)


@kp.jit
def weigh_share(row, begin, end, bound, last, GROUPS: tl.constexpr):
    """Lists the groups from `begin` up to `end`, and leaves the sum of the weights of each."""
    for first in range(begin, end, GROUPS):
        group = first + tl.arange(0, GROUPS)
        present = group < row.groups
        value = tl.load(
            row.values + first.to(tl.int64) * GROUP + places_in(GROUPS), mask=present[:, None], other=-INFINITY
        )  # fmt: skip
        tl.store(row.sums + group, sums_of(value, group, row, bound, last, False), mask=present)
        tl.store(row.listed + group, group, mask=present)


@kp.jit
def sum_of(row, count):
    """Returns the sum of the weights of listed groups, of which each has been left."""
    total = tl.zeros([CHUNK], tl.int64)
    for begin in range(0, count, CHUNK):
        at = begin + tl.arange(0, CHUNK)
        total += tl.load(row.sums + at, mask=at < count, other=0)
    return tl.sum(total, axis=0)


@kp.jit
def place_of(row, count, before, bound, last, EQUAL: tl.constexpr):
    """Returns the first place up to which, place by place, there is more weight than `before`. `weigh` was called last for this bound."""
    index, passed, sum_so_far = tl.full([], 0, tl.int32), before * 0, before * 0
    for begin in range(0, count, CHUNK):
        at = begin + tl.arange(0, CHUNK)
        sums = sum_so_far + tl.cumsum(tl.load(row.sums + at, mask=at < count, other=0), axis=0)
        done = sums <= before
        index += tl.sum((done & (at < count)).to(tl.int32), axis=0)
        passed = tl.maximum(passed, tl.max(tl.where(done, sums, 0), axis=0))
        sum_so_far = tl.max(sums, axis=0)
    group = tl.load(row.listed + tl.minimum(index, count - 1)).to(tl.int64)
    places = tl.arange(0, GROUP)
    weights = weights_of(tl.load(row.values + group * GROUP + places), places, row, bound, place_in(last, group, 1), EQUAL)
    found = tl.min(tl.where(passed + tl.cumsum(weights, axis=0) > before, places, GROUP - 1), axis=0)
    tl.debug_barrier()  # sums may be written again
    return group * GROUP + found


# -- the draw ------------------------------------------------------------------------------------------------------------------


@kp.jit
def uniform_below(seed, position, attempt, total):
    """Returns a random integer from 0 to total - 1."""
    one, two, _, _ = tl.philox(seed, position.to(tl.uint32), (position >> 32).to(tl.uint32), attempt.to(tl.uint32), 0)
    word = (one.to(tl.uint64) << 32) | two.to(tl.uint64)
    return tl.umulhi(word, total.to(tl.uint64)).to(tl.int64)


@kp.jit
def bound_of_min_p(row, min_p):
    """Returns the smallest value that min_p keeps."""
    bound = tl.full([], -INFINITY, tl.float32)
    floor = row.peak + tl.log(min_p)
    if floor > bound:
        bound = tl.minimum(floor, row.peak)
    return bound


@kp.jit
def draw_first(row, seed, position, min_p):
    """Returns a place that is drawn from all that min-p keeps, and the weight of all of that. Each group's sum was left before."""
    total = sum_of(row, row.groups)
    before = uniform_below(seed, position, row.columns * 0, total)
    return place_of(row, row.groups, before, bound_of_min_p(row, min_p), row.columns, False), total


@kp.jit
def draw(row, seed, position, top_k, top_p, min_p, place, total, GROUPS: tl.constexpr):
    """Returns the place of a value that is drawn.

    What top-p keeps is never looked for. A place is drawn from all that top-k and min-p keep. The weight before it in order says whether
    top-p keeps it; if not, nothing after it in order is kept either, and a place before it is drawn. So each kept place is as likely as
    its weight says.

    Where top-k keeps all, weights were left before: those of all that min-p keeps; or `draw_first` drew a place from a `total`, and those
    of all before it were left. Else the place is -1.
    """
    bound, last, count = bound_of_min_p(row, min_p), row.columns, row.groups
    attempt, enough = row.columns * 0, top_p.to(tl.float64) * total.to(tl.float64)
    weighed = (top_k <= 0) | (top_k >= row.columns)
    if not weighed:
        floor = bound
        bound, last = bound_of_top_k(row, top_k, GROUPS)
        if floor > bound:
            bound, last = floor, row.columns
        count = list_groups(row, bound)
    searching = (place < 0) | (top_p < 1.0)
    if place >= 0:
        bound, last = tl.load(row.values + place), place - 1
        attempt += 1
    while searching:
        if weighed:
            total = sum_of(row, count)
        else:
            total = weigh(row, count, bound, last, False, GROUPS)
        if place < 0:
            enough = top_p.to(tl.float64) * total.to(tl.float64)
        else:
            searching = (total > 0) & (total.to(tl.float64) >= enough)
        if searching:
            place = place_of(row, count, uniform_below(seed, position, attempt, total), bound, last, False)
            bound, last = tl.load(row.values + place), place - 1
            attempt += 1
            searching = top_p < 1.0
            if searching:
                count = list_groups(row, bound)
                weighed = False
    return place
