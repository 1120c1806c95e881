"""Kernels with equal code are linked once, whatever they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import PackError
from kernelpack.pack.elf import linked_for, linked_packs, read_object
from kernelpack.pack.format import KernelPack
from kernelpack.target import Target
from tests.backends.cpu.kernels import compile_module
from tests.backends.cpu.plan.plans import ttir
from tests.pack.test_format import PACK


@kp.jit
def exponentials(x, out, factor, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.exp(tl.load(x + i).to(tl.float32) * factor))


def pack_of(name: str, level: str, n: int, x: str = "*fp32") -> KernelPack:
    module = ttir(exponentials, x=x, out="*fp32", factor="fp32", N=n)
    entry = next(op for op in module.walk() if op.name == "tt.func")
    entry.attributes["sym_name"] = f"my_{name}"
    kernel = compile_module(module, level)
    return replace(PACK, variant=name, entry=f"my_{name}", target=Target.parse(f"cpu:{level}"), image=kernel.image)


def entries_linked_for(packs: Sequence[KernelPack]) -> dict[str, str]:
    return {entry: pack.entry for entry, pack in linked_for(packs).items()}


def test_equal_code_is_linked_once() -> None:
    """Without bfloat16 in it, a kernel is the same with and without its instructions; another size or dtype is another kernel."""
    packs = [
        pack_of("first", "x86-64-v4", 64),
        pack_of("second", "x86-64-v4+avx512bf16", 64),
        pack_of("longer", "x86-64-v4", 128),
        pack_of("older", "x86-64-v3", 64),
        pack_of("narrow", "x86-64-v4", 64, x="*bf16"),
    ]
    linked = {name.removeprefix("my_"): other.removeprefix("my_") for name, other in entries_linked_for(packs).items()}
    assert linked == {"first": "first", "second": "first", "longer": "longer", "older": "older", "narrow": "narrow"}
    assert [pack.variant for pack in linked_packs(packs)] == ["first", "longer", "older", "narrow"]


def test_what_is_referred_to_counts() -> None:
    """Two kernels whose bytes are equal before linking may call different functions."""
    pack = pack_of("first", "x86-64-v3", 64)
    made = read_object(pack)
    others = {one.symbol.name for index in range(len(made.sections)) for one in made.relocations(index)} - {"", "my_first"}
    assert {section.name for section in made.sections if section.is_loaded} >= {".text"}
    renamed = replace(pack, entry="my_other", image=pack.image.replace(b"my_first", b"my_other"))
    assert entries_linked_for([pack, renamed]) == {"my_first": "my_first", "my_other": "my_first"}
    for name in others:
        changed = replace(renamed, image=renamed.image.replace(name.encode(), name[:-1].encode() + b"?"))
        assert entries_linked_for([pack, changed])["my_other"] == "my_other"


def test_different_code_of_one_name_is_refused() -> None:
    first, other = pack_of("first", "x86-64-v3", 64), pack_of("first", "x86-64-v3", 128)
    with pytest.raises(PackError, match="have different code of one name, my_first"):
        linked_for([first, replace(other, entry="my_other", code_of="my_first")])


def test_an_image_that_is_no_object_is_refused() -> None:
    with pytest.raises(PackError, match="no 64-bit little-endian ELF object"):
        entries_linked_for([replace(PACK, image=b"\x7fELF of another kind")])
