"""Sums of four products of bytes, of vectors and scalars of words: by `vpdpbusd`, `vpmaddubsw`, ARM's `sdot`, `udot` and `usdot`, or byte
after byte."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from kernelpack.llvm.text import Emitter, Val, literal, suffix, vector_type, vector_width

MULTIPLY_PAIRS = {128: "llvm.x86.sse2.pmadd.wd", 256: "llvm.x86.avx2.pmadd.wd", 512: "llvm.x86.avx512.pmaddw.d.512"}
"""Products of neighbours of 16 bits and their sums, by the bits of a register."""
_MULTIPLY_BYTES = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    512: "llvm.x86.avx512.pmaddubs.w.512",
}
"""Products of unsigned bytes with signed ones, and sums of neighbours, which saturate at 16 bits."""
_HIGHEST = int.from_bytes(bytes([128] * 4), "little", signed=True)
"""A word with the highest bit of every byte: flips a signed byte to an unsigned one that is 128 greater."""
_ONES = int.from_bytes(bytes([1] * 4), "little")
_MOST = 2**15 - 1

Pair = tuple[Val, Val]


def by_lanes(em: Emitter, a: Val, b: Val, acc: Val) -> Val:
    """Returns acc and, in each lane, the sum of the products of four bytes along k, by one instruction. Bytes of b are signed; those of a are
    too on ARM, and unsigned on x86."""
    if "neon" in em.features:
        return _by_arm(em, "sdot", a, b, acc)
    return em.call(a.type, f"llvm.x86.avx512.vpdpbusd.{32 * vector_width(a.type)}", [acc, a, b])


def _by_arm(em: Emitter, name: str, a: Val, b: Val, acc: Val) -> Val:
    bytes_ = vector_type("i8", 4 * vector_width(a.type))
    factors = [em.cast("bitcast", value, bytes_) for value in (a, b)]
    return em.call(a.type, f"llvm.aarch64.neon.{name}.{suffix(a.type)}.{suffix(bytes_)}", [acc, *factors])


def dot(em: Emitter, acc: Val, pairs: Sequence[Pair], a_signed: bool, b_signed: bool, a_most: int, pack: int) -> Val:
    """Returns acc and, of each pair (a, b), the sum of the products of the four bytes of each word of a with those of b, which wraps.

    Unsigned bytes of a are at most `a_most`. `pack` is `Level.int8_pack`. Instructions take unsigned bytes of one operand and signed ones
    of the other: where both are signed, a becomes unsigned, 128 greater, and where neither is, b becomes signed, 128 less.
    """
    kind = acc.type
    if a_signed and not b_signed:
        pairs, a_signed, b_signed, a_most = [(b, a) for a, b in pairs], False, True, 255
    if "neon" in em.features and pack == 4 and vector_width(kind) in (2, 4):
        for a, b in pairs:
            acc = _by_arm(em, "sdot" if a_signed else "usdot" if b_signed else "udot", a, b, acc)
        return acc
    if a_signed == b_signed:
        ones = literal(_ONES, kind)
        # an unsigned factor that stays is itself the first, a signed one the second
        others = [(ones, b) for _, b in pairs] if a_signed else [(a, ones) for a, _ in pairs]
        sums = _products(em, literal(0, kind), others, 1 if a_signed else a_most, pack)
        correction = em.binary("shl", sums, literal(7, kind))
        acc = em.binary("sub" if a_signed else "add", acc, correction)
        pairs = [(_flipped(em, a), b) if a_signed else (a, _flipped(em, b)) for a, b in pairs]
        a_most = 255 if a_signed else a_most
    return _products(em, acc, pairs, a_most, pack)


def _flipped(em: Emitter, word: Val) -> Val:
    return em.binary("xor", word, literal(_HIGHEST, word.type))


def _products(em: Emitter, acc: Val, pairs: Sequence[Pair], a_most: int, pack: int) -> Val:
    """Returns acc + a * b of each pair, for unsigned bytes of a, at most `a_most`, and signed ones of b."""
    kind, bits = acc.type, 32 * vector_width(acc.type)
    is_arm = "neon" in em.features
    if bits not in MULTIPLY_PAIRS or (is_arm and bits != 128) or (not is_arm and pack == 1):
        for a, b in pairs:
            acc = _byte_after_byte(em, a, b, acc)
        return acc
    if pack == 4 and not is_arm:
        for a, b in pairs:
            acc = by_lanes(em, a, b, acc)
        return acc
    if a_most > 127:  # two products of 8 bits and their sum pass 16 bits: the highest bits have a product of their own
        high = [(em.binary("and", em.binary("lshr", a, literal(7, kind)), literal(_ONES, kind)), b) for a, b in pairs]
        sums = _products(em, literal(0, kind), high, 1, pack)
        acc = em.binary("add", acc, em.binary("shl", sums, literal(7, kind)))
        return _products(em, acc, [(em.binary("and", a, literal(~_HIGHEST, kind)), b) for a, b in pairs], 127, pack)
    words = vector_type("i16", bits // 16)
    together = _MOST // (a_most * 128 * 2)  # so many pairs have a sum of 16 bits
    for first in range(0, len(pairs), together):
        sums = reduce(partial(em.binary, "add"), (_sums_of_two(em, a, b) for a, b in pairs[first : first + together]))
        if is_arm:
            added = em.call(kind, f"llvm.aarch64.neon.saddlp.{suffix(kind)}.{suffix(words)}", [sums])
        else:
            added = em.call(kind, MULTIPLY_PAIRS[bits], [sums, literal(1, words)])
        acc = em.binary("add", acc, added)
    return acc


def _sums_of_two(em: Emitter, a: Val, b: Val) -> Val:
    """Returns the sums of products of neighbouring bytes, in 16 bits. On ARM both are signed, which smaller unsigned ones are, too."""
    bits = 32 * vector_width(a.type)
    words = vector_type("i16", bits // 16)
    factors = [em.cast("bitcast", value, vector_type("i8", bits // 8)) for value in (a, b)]
    if "neon" not in em.features:
        return em.call(words, _MULTIPLY_BYTES[bits], factors)
    halves = [[em.shuffle(factor, None, range(first, first + 8)) for factor in factors] for first in (0, 8)]
    products = [em.call(words, f"llvm.aarch64.neon.smull.{suffix(words)}", half) for half in halves]
    return em.call(words, f"llvm.aarch64.neon.addp.{suffix(words)}", products)


def _byte_after_byte(em: Emitter, a: Val, b: Val, acc: Val) -> Val:
    kind = a.type
    for place in range(4):
        unsigned = em.binary("and", em.binary("lshr", a, literal(8 * place, kind)), literal(255, kind))
        signed = em.binary("ashr", em.binary("shl", b, literal(24 - 8 * place, kind)), literal(24, kind))
        acc = em.binary("add", acc, em.binary("mul", unsigned, signed))
    return acc
