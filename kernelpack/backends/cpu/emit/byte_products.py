"""Sums of four products of bytes, of vectors and scalars of words: by `vpdpbusd`, `vpmaddubsw`, ARM's `sdot`, `udot` and `usdot`, or byte
after byte."""

from __future__ import annotations

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


def dot(em: Emitter, a: Val, b: Val, acc: Val, a_signed: bool, b_signed: bool, a_most: int, pack: int) -> Val:
    """Returns acc and the sum of the products of the four bytes of each word of a with those of b, which wraps.

    Unsigned bytes of a are at most `a_most`. `pack` is `Level.int8_pack`. Instructions take unsigned bytes of one operand and signed ones
    of the other: where both are signed, a becomes unsigned, 128 greater, and where neither is, b becomes signed, 128 less.
    """
    kind = a.type
    if a_signed and not b_signed:
        a, b, a_signed, b_signed, a_most = b, a, False, True, 255
    if "neon" in em.features and pack == 4 and vector_width(kind) in (2, 4):
        return _by_arm(em, "sdot" if a_signed else "usdot" if b_signed else "udot", a, b, acc)
    if a_signed == b_signed:
        flipped, other = (a, b) if a_signed else (b, a)
        # an unsigned `other` is itself the first factor, a signed one the second
        ones = literal(_ONES, kind)
        sums = (
            _product(em, ones, other, literal(0, kind), 1, pack)
            if a_signed
            else _product(em, other, ones, literal(0, kind), a_most, pack)
        )
        correction = em.binary("shl", sums, literal(7, kind))
        acc = em.binary("sub" if a_signed else "add", acc, correction)
        flipped = em.binary("xor", flipped, literal(_HIGHEST, kind))
        a, b, a_most = (flipped, b, 255) if a_signed else (a, flipped, a_most)
    return _product(em, a, b, acc, a_most, pack)


def _product(em: Emitter, a: Val, b: Val, acc: Val, a_most: int, pack: int) -> Val:
    """Returns acc + a * b for unsigned bytes of a, at most `a_most`, and signed ones of b."""
    kind, bits = a.type, 32 * vector_width(a.type)
    if bits not in MULTIPLY_PAIRS or pack == 1 or "neon" in em.features:
        return _byte_after_byte(em, a, b, acc)
    if pack == 4:
        return by_lanes(em, a, b, acc)
    if a_most > 127:  # two products of 8 bits and their sum pass 16 bits: the highest bits have a product of their own
        high = em.binary("and", em.binary("lshr", a, literal(7, kind)), literal(_ONES, kind))
        sums = _product(em, high, b, literal(0, kind), 1, pack)
        acc = em.binary("add", acc, em.binary("shl", sums, literal(7, kind)))
        a = em.binary("and", a, literal(~_HIGHEST, kind))
    bytes_, pairs = vector_type("i8", bits // 8), vector_type("i16", bits // 16)
    factors = [em.cast("bitcast", value, bytes_) for value in (a, b)]
    sums = em.call(pairs, _MULTIPLY_BYTES[bits], factors)
    return em.binary("add", acc, em.call(kind, MULTIPLY_PAIRS[bits], [sums, literal(1, pairs)]))


def _byte_after_byte(em: Emitter, a: Val, b: Val, acc: Val) -> Val:
    kind = a.type
    for place in range(4):
        unsigned = em.binary("and", em.binary("lshr", a, literal(8 * place, kind)), literal(255, kind))
        signed = em.binary("ashr", em.binary("shl", b, literal(24 - 8 * place, kind)), literal(24, kind))
        acc = em.binary("add", acc, em.binary("mul", unsigned, signed))
    return acc
