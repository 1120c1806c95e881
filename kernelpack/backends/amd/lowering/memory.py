"""Loads and stores of global memory: under a branch where a mask or copies ask for one.

Nothing is made of cache operators and eviction priorities, which change no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.gpu.lowering.global_memory import Access, load_by, plain_load, store_by, store_words, word_of
from kernelpack.backends.gpu.lowering.shared_memory import only_if
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.llvm.text import Val


def _load_words(state: Lowering, access: Access, fill: Callable[[], list[Val]]) -> list[Val]:
    if access.predicate is None:
        return _load_now(state, access)
    emit, words = state.emit, access.words
    elements, per = fill(), words.per_word
    initial = [word_of(state, elements[at : at + per], words.kind) for at in range(0, len(elements), per)]
    then, end, before = emit.new_label("load"), emit.new_label("endload"), emit.block
    emit.branch(access.predicate, then, end)
    emit.label(then)
    loaded = _load_now(state, access)
    emit.jump(end)
    emit.label(end)
    return [
        emit.op(word.type, f"phi {word.type} [ {word.name}, %{then} ], [ {other.name}, %{before} ]")
        for word, other in zip(loaded, initial, strict=True)
    ]


def _load_now(state: Lowering, access: Access) -> list[Val]:
    if not attribute(access.op, "is_volatile"):
        return plain_load(state, access)
    emit, words = state.emit, access.words
    size = access.size // words.count
    addresses = [emit.offset(access.pointer, size * number) for number in range(words.count)]
    return [emit.op(words.kind, f"load volatile {words.kind}, {address}, align {size}") for address in addresses]


def _store_words(state: Lowering, access: Access, packed: Sequence[Val]) -> None:
    with only_if(state, access.predicate):
        store_words(state, access.pointer, access.words, packed, access.size)


GLOBAL_MEMORY: dict[str, Callable[[Lowering, Operation], None]] = {
    "tt.load": load_by(_load_words),
    "tt.store": store_by(_store_words),
}
