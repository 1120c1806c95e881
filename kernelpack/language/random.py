"""Random numbers that depend on a seed and an offset alone: Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", SC 2011), with the streams of triton.language."""

# mypy: ignore-errors
# What follows is not Python to a type checker: parameters are tensors or compile-time values, as the call has it.

from __future__ import annotations

from kernelpack.kernel.jit import constexpr_function, jit
from kernelpack.language import core, math

__all__ = [
    "pair_uniform_to_normal",
    "philox",
    "philox_impl",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
    "randn4x",
    "uint_to_uniform_float",
]

ROUNDS: core.constexpr = core.constexpr(10)

# by the width of a word: the multipliers of a round, and what the two keys grow by (section 4.3 of the paper)
_WORDS = {
    32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
    64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
}


@constexpr_function
def _word(width, index):
    return _WORDS[width][index]


@constexpr_function
def _unsigned(width):
    return core.uint32 if width == 32 else core.uint64


@jit
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: core.constexpr = ROUNDS):
    """Returns the four words of a counter (c0 ... c3) after `n_rounds` rounds with a key (k0, k1). All are uint32, or all uint64."""
    width: core.constexpr = c0.dtype.primitive_bitwidth
    a: core.constexpr = _word(width, 0)
    b: core.constexpr = _word(width, 1)
    for _ in core.static_range(n_rounds):
        even, odd = c0, c2
        c0 = math.umulhi(core.full(odd.shape, b, odd.dtype), odd) ^ c1 ^ k0
        c2 = math.umulhi(core.full(even.shape, a, even.dtype), even) ^ c3 ^ k1
        c1 = odd * b
        c3 = even * a
        k0 = k0 + _word(width, 2)
        k1 = k1 + _word(width, 3)
    return c0, c1, c2, c3


@jit
def philox(seed, c0, c1, c2, c3, n_rounds: core.constexpr = ROUNDS):
    """Returns four random words of the counters' width, 32 or 64 bits, for a seed of up to 64 bits and four counters."""
    c0 = core.to_tensor(c0)
    seed = core.to_tensor(seed)
    core.static_assert(seed.dtype.is_int(), "the seed of random numbers is an integer")
    width: core.constexpr = c0.dtype.primitive_bitwidth
    core.static_assert(width >= 32, "counters of random numbers have 32 or 64 bits")
    word: core.constexpr = _unsigned(width)
    seed = seed.to(core.uint64)
    if width == 32:
        k0 = (seed & 0xFFFFFFFF).to(core.uint32)
        k1 = (seed >> 32).to(core.uint32)
    else:
        k0 = seed
        k1 = seed * 0
    c0 = c0.to(word)
    c1 = core.to_tensor(c1).to(word)
    c2 = core.to_tensor(c2).to(word)
    c3 = core.to_tensor(c3).to(word)
    return philox_impl(c0, c1, c2, c3, k0, k1, n_rounds)


@jit
def randint4x(seed, offset, n_rounds: core.constexpr = ROUNDS):
    """Returns four random uint32 for a seed and each offset: what `randint` gives, and three more at no cost."""
    offset = core.to_tensor(offset)
    low = offset.to(core.uint32)
    zero = low * 0
    high = zero
    if offset.dtype.primitive_bitwidth > 32:
        high = (offset >> 32).to(core.uint32)
    return philox(seed, low, high, zero, zero, n_rounds)


@jit
def randint(seed, offset, n_rounds: core.constexpr = ROUNDS):
    """Returns a random uint32 for a seed and each offset."""
    first, _, _, _ = randint4x(seed, offset, n_rounds)
    return first


@jit
def uint_to_uniform_float(x):
    """Returns a float32 in [0, 1) for each random uint32 or uint64."""
    if x.dtype.primitive_bitwidth == 32:
        signed = x.to(core.int32, bitcast=True)
        scale: core.constexpr = 4.6566127342e-10  # just below 2^-31, so that 1 is never reached
    else:
        signed = x.to(core.int64, bitcast=True)
        scale: core.constexpr = 1.0842020432385337e-19
    return core.where(signed < 0, -signed - 1, signed) * scale


@jit
def rand(seed, offset, n_rounds: core.constexpr = ROUNDS):
    """Returns a random float32, uniform in [0, 1), for a seed and each offset."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@jit
def rand4x(seed, offset, n_rounds: core.constexpr = ROUNDS):
    """Returns four random float32, uniform in [0, 1), for a seed and each offset."""
    a, b, c, d = randint4x(seed, offset, n_rounds)
    return uint_to_uniform_float(a), uint_to_uniform_float(b), uint_to_uniform_float(c), uint_to_uniform_float(d)


@jit
def pair_uniform_to_normal(u1, u2):
    """Returns two numbers of the standard normal distribution for two uniform ones (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(core.maximum(1.0e-7, u1)))
    angle = 6.283185307179586 * u2
    return radius * math.cos(angle), radius * math.sin(angle)


@jit
def randn(seed, offset, n_rounds: core.constexpr = ROUNDS):
    """Returns a random float32 of the standard normal distribution for a seed and each offset."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    first, _ = pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))
    return first


@jit
def randn4x(seed, offset, n_rounds: core.constexpr = ROUNDS):
    """Returns four random float32 of the standard normal distribution for a seed and each offset."""
    a, b, c, d = rand4x(seed, offset, n_rounds)
    first, second = pair_uniform_to_normal(a, b)
    third, fourth = pair_uniform_to_normal(c, d)
    return first, second, third, fourth
