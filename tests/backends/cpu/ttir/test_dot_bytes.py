"""Sums of four products of bytes become one operation; what only looks like one stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.tiles import target_of_kernel
from kernelpack.backends.cpu.stages import code_target
from kernelpack.backends.cpu.ttir.dot_bytes import dot_bytes
from kernelpack.compiler.stages import optimise_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import operands_called
from kernelpack.ir.interpret import launch
from kernelpack.ir.verify import verify
from kernelpack.passes import TTIR
from kernelpack.target import Target
from tests.backends.cpu.agreement import check, ttir_of


@kp.jit
def piece(word, place: tl.constexpr, SIGNED: tl.constexpr, MASK: tl.constexpr, OFFSET: tl.constexpr):
    if SIGNED:
        return (word >> (8 * place)).to(tl.int8).to(tl.int32)
    return (word >> (8 * place + OFFSET)) & MASK


@kp.jit
def sums(
    a, b, c, out, N: tl.constexpr, A_SIGNED: tl.constexpr, A_MASK: tl.constexpr, A_OFFSET: tl.constexpr,
    B_SIGNED: tl.constexpr, SCALAR: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, N)
    x = tl.load(a + at)
    y = tl.load(b) if SCALAR else tl.load(b + at)
    total = tl.load(c + at)
    for place in tl.static_range(4):
        total += piece(x, place, A_SIGNED, A_MASK, A_OFFSET) * piece(y, place, B_SIGNED, 255, 0)
    tl.store(out + at, total)


@kp.jit
def nibbles(codes, x, out, N: tl.constexpr, BLOCKS):
    """A row of a product with codes of four bits, as quantised weights have them."""
    n = tl.arange(0, N)
    acc = tl.zeros([N], tl.float32)
    for block in range(BLOCKS):
        part = tl.zeros([N], tl.int32)
        for i in tl.static_range(2):
            word = tl.load(codes + (2 * block + i) * N + n)
            low, high = tl.load(x + 4 * block + i), tl.load(x + 4 * block + 2 + i)
            for place in tl.static_range(4):
                part += ((word >> (8 * place)) & 15) * (low >> (8 * place)).to(tl.int8).to(tl.int32)
                part += ((word >> (8 * place + 4)) & 15) * (high >> (8 * place)).to(tl.int8).to(tl.int32)
        acc += part.to(tl.float32)
    tl.store(out + n, acc)


@kp.jit
def table(a, b, out, M: tl.constexpr, N: tl.constexpr):
    """Words of two tiles, each broadcast along the other's axis."""
    x, y = tl.load(a + tl.arange(0, M))[:, None], tl.load(b + tl.arange(0, N))[None, :]
    total = tl.zeros([M, N], tl.int32)
    for place in tl.static_range(4):
        total += ((x >> (8 * place)) & 255) * (y >> (8 * place)).to(tl.int8).to(tl.int32)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


def words(count: int) -> torch.Tensor:
    made = torch.randint(-(2**31), 2**31, (count,), dtype=torch.int32)
    made[:4] = torch.tensor([0, -1, 0x7F7F7F7F, -0x7F7F7F80])  # all bits off, all on, the largest and smallest of signed bytes
    return made


def rewritten(kernel: Any, arguments: tuple[Any, ...], constexprs: dict[str, Any], *, together: bool = True) -> list[Operation]:
    module = optimise_ttir(ttir_of(kernel, arguments, constexprs))
    dot_bytes(module, together=together)
    verify(module)
    return [op for op in TTIR.run(module).walk() if op.name == "cpu.dot_bytes"]


SIGNS = [
    {"A_SIGNED": a, "A_MASK": mask, "A_OFFSET": offset, "B_SIGNED": b, "SCALAR": scalar}
    for a, mask, offset in ((True, 255, 0), (False, 255, 0), (False, 127, 0), (False, 15, 0), (False, 15, 4), (False, 1, 7))
    for b in (True, False)
    for scalar in (True, False)
]


@pytest.mark.parametrize("n", [2, 64])
@pytest.mark.parametrize("signs", SIGNS, ids=lambda signs: "-".join(map(str, signs.values())))
def test_every_sign_and_mask_is_one_operation_and_exact(signs: dict[str, Any], n: int) -> None:
    torch.manual_seed(1)
    a, b, c, out = words(max(n, 4)), words(max(n, 4)), words(max(n, 4)), torch.zeros(max(n, 4), dtype=torch.int32)
    arguments, constexprs = (a, b.flip(0), c, out), {"N": n, **signs}
    (made,) = rewritten(sums, arguments, constexprs)
    assert made.attributes["a_most"] <= (255 if signs["A_SIGNED"] else max(signs["A_MASK"], 0 if signs["B_SIGNED"] else 255))
    check(sums, (1,), *arguments, **constexprs)


@pytest.mark.parametrize("together", [True, False])
def test_the_interpreter_gives_the_operation_the_meaning_of_the_sum(together: bool) -> None:
    torch.manual_seed(2)
    for signs in SIGNS:
        constexprs = {"N": 64, **signs}
        results = []
        for rewrite in (False, True):
            arguments = [words(64).clone() for _ in range(3)] if not results else results[0][:3]
            out = torch.zeros(64, dtype=torch.int32)
            module = optimise_ttir(ttir_of(sums, (*arguments, out), constexprs))
            launch(dot_bytes(module, together=together) if rewrite else module, (1,), [*arguments, out])
            results.append([*arguments, out])
        assert torch.equal(results[0][3], results[1][3]), signs


def test_codes_of_four_bits_are_unpacked_word_by_word() -> None:
    torch.manual_seed(3)
    codes, x, out = words(2 * 3 * 64), words(4 * 3), torch.zeros(64)
    (sums_of_words,) = rewritten(nibbles, (codes, x, out, 3), {"N": 64})
    assert len(operands_called(sums_of_words, "factors")) == 8
    first, *others = rewritten(nibbles, (codes, x, out, 3), {"N": 64}, together=False)
    assert [op.operands[0] for op in others] == [first.result, *(op.result for op in others[:-1])]
    assert [len(op.operands) for op in (first, *others)] == [3] * 4
    before = [op.name for op in first.parent.operations] if first.parent is not None else []
    places = [number for number, name in enumerate(before) if name == "cpu.dot_bytes"]
    assert places[2] > before.index("tt.load", places[1]) > places[1]  # the second word is read after the first one's products
    check(nibbles, (1,), codes, x, out, 3, N=64)
    bits = codes.numpy().view(np.uint32).reshape(3, 2, 64)
    bytes_ = x.numpy().view(np.int8).reshape(3, 2, 2, 4).astype(np.int64)
    expected = sum(
        ((bits[:, i] >> (8 * place + 4 * half)) & 15).astype(np.int64) * bytes_[:, half, i, place, None]
        for i in range(2)
        for half in range(2)
        for place in range(4)
    ).sum(0)
    nibbles[(1,)](codes, x, out, 64, 3)
    assert out.tolist() == expected.tolist()


@kp.jit
def two_sums(a, b, c, out, N: tl.constexpr, SPLIT: tl.constexpr):
    """Sums of two words' bytes each, which are added; split in the middle of a word, they are not sums of whole words."""
    at = tl.arange(0, N)
    low, high = tl.load(c + at), tl.zeros([N], tl.int32)
    x, y = (
        [tl.load(a + word * N + at) for word in tl.static_range(4)],
        [tl.load(b + word * N + at) for word in tl.static_range(4)],
    )
    for word in tl.static_range(4):
        for byte in tl.static_range(4):
            product = ((x[word] >> (8 * byte)) & 255) * (y[word] >> (8 * byte)).to(tl.int8).to(tl.int32)
            if 4 * word + byte < SPLIT:
                low += product
            else:
                high += product
    tl.store(out + at, low + high + tl.load(c + N + at))


@pytest.mark.parametrize(("split", "chains"), [(8, 2), (4, 1), (6, 1), (16, 1)])
@pytest.mark.parametrize("together", [True, False])
def test_two_sums_of_several_whole_words_that_are_added_stay_two(split: int, chains: int, together: bool) -> None:
    torch.manual_seed(6)
    arguments = words(4 * 32), words(4 * 32), words(2 * 32), torch.zeros(32, dtype=torch.int32)
    made = rewritten(two_sums, arguments, {"N": 32, "SPLIT": split}, together=together)
    results = {op.result for op in made}
    assert sum(op.operands[0] not in results for op in made) == chains
    assert len(made) == (chains if together else 4)
    check(two_sums, (1,), *arguments, N=32, SPLIT=split)


@kp.jit
def shared(a, b, out, N: tl.constexpr):
    """Two sums with the same products, the first of them stored before the second is made."""
    at = tl.arange(0, N)
    x, y = tl.load(a + at), tl.load(b + at)
    product = [((x >> (8 * byte)) & 255) * (y >> (8 * byte)).to(tl.int8).to(tl.int32) for byte in tl.static_range(4)]
    for number in tl.static_range(2):
        total = tl.load(out + number * N + at)
        for byte in tl.static_range(4):
            total += product[byte]
        tl.store(out + number * N + at, total)


@pytest.mark.parametrize("together", [True, False])
def test_products_of_two_sums_are_made_for_each_whichever_uses_them_first(together: bool) -> None:
    torch.manual_seed(7)
    arguments = words(32), words(32), words(64)
    module = optimise_ttir(ttir_of(shared, arguments, {"N": 32}))
    for op in module.walk():
        for value in op.results:
            value.uses.reverse()
    dot_bytes(module, together=together)
    verify(module)
    assert [op.name for op in module.walk()].count("cpu.dot_bytes") == 2
    check(shared, (1,), *arguments, N=32)


def test_words_that_are_broadcast() -> None:
    torch.manual_seed(4)
    a, b, out = words(8), words(32), torch.zeros(8, 32, dtype=torch.int32)
    assert len(rewritten(table, (a, b, out), {"M": 8, "N": 32})) == 1
    check(table, (1,), a, b, out, M=8, N=32)


@kp.jit
def unlike(a, b, out, N: tl.constexpr, CASE: tl.constexpr):
    at = tl.arange(0, N)
    x, y, other = tl.load(a + at), tl.load(b + at), tl.load(b + N + at)
    total = tl.zeros([N], tl.int32)
    for place in tl.static_range(3 if CASE == "three" else 4):
        if CASE == "two words":
            second = (y if place < 2 else other) >> (8 * place)
        elif CASE == "crossed":
            second = y >> (8 * (3 - place))
        else:
            second = y >> (8 * place)
        factor = second & (511 if CASE == "nine bits" else 255)
        if CASE == "shifted":
            total += ((x >> (8 * place + 2)) & 255) * factor
        elif CASE == "masks":
            total += ((x >> (8 * place)) & (15 if place else 7)) * factor
        else:
            total += ((x >> (8 * place)) & 255) * factor
    tl.store(out + at, total)


@pytest.mark.parametrize("case", ["three", "two words", "crossed", "nine bits", "shifted", "masks"])
def test_what_is_no_sum_of_four_bytes_stays_and_stays_right(case: str) -> None:
    torch.manual_seed(5)
    arguments, constexprs = (words(32), words(64), torch.zeros(32, dtype=torch.int32)), {"N": 32, "CASE": case}
    assert rewritten(unlike, arguments, constexprs) == []
    check(unlike, (1,), *arguments, **constexprs)


def test_such_a_kernel_gains_from_vnni() -> None:
    arguments = (words(64), words(64), words(64), torch.zeros(64, dtype=torch.int32))
    module = optimise_ttir(ttir_of(sums, arguments, {"N": 64, **SIGNS[4]}))
    vnni, amx = Target.parse("cpu:x86-64-v4+avx512vnni"), Target.parse("cpu:x86-64-v4+amx")
    assert code_target(amx, module) == vnni
    assert target_of_kernel(amx, module) == Target.parse("cpu:x86-64-v4")  # before it is recognised
