"""Loads and stores of global memory on NVIDIA's GPUs: plain where nothing is asked, else PTX with qualifiers, under a predicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.machine.features import Feature
from kernelpack.backends.gpu.lowering.global_memory import Access, Words, load_by, plain_load, store_by, store_words, word_of
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute
from kernelpack.llvm.text import Val

_CONSTRAINTS = {"i8": "h", "i16": "h", "i32": "r", "i64": "l"}


def _suffix(words: Words) -> str:
    return (f".v{words.count}" if words.count > 1 else "") + f".b{words.bits}"


def _load_words(state: Lowering, access: Access, fill: Callable[[], list[Val]]) -> list[Val]:
    qualifiers = _load_qualifiers(access.op)
    if access.predicate is None and not qualifiers:
        return plain_load(state, access)
    return _masked_load(state, access.pointer, access.words, access.predicate, fill(), qualifiers)


def _store_words(state: Lowering, access: Access, packed: Sequence[Val]) -> None:
    qualifiers = _cache_qualifiers(access.op, {"wb": ".wb", "cg": ".cg", "cs": ".cs", "wt": ".wt"})
    if access.predicate is None and not qualifiers:
        store_words(state, access.pointer, access.words, packed, access.size)
    else:
        masked_store(state, access.pointer, access.words, packed, access.predicate, qualifiers)


def _masked_load(
    state: Lowering, pointer: Val, words: Words, predicate: Val | None, fill: Sequence[Val], qualifiers: str
) -> list[Val]:
    """Loads where the predicate holds; elsewhere the words keep what they are filled with."""
    # a byte travels in a 16-bit register
    kind = "i16" if words.kind == "i8" else words.kind
    per = words.per_word
    initial = [word_of(state, fill[at : at + per], words.kind) for at in range(0, len(fill), per)]
    if words.kind == "i8":
        initial = [state.emit.cast("zext", word, "i16") for word in initial]
    count = words.count
    outputs = [f"${index}" for index in range(count)]
    list_text = outputs[0] if count == 1 else "{" + ", ".join(outputs) + "}"
    address, condition = f"${2 * count}", f"@${2 * count + 1} " if predicate is not None else ""
    # each output starts as the input tied to it, so that lanes whose predicate is false keep the fill
    text = f"{condition}ld{qualifiers or '.global'}{_suffix(words)} {list_text}, [{address}];"
    constraints = ",".join(
        [f"={_CONSTRAINTS[words.kind]}"] * count + [str(index) for index in range(count)] + ["l"] + (["b"] if predicate else [])
    )
    arguments = [*initial, pointer, *([predicate] if predicate is not None else [])]
    aggregate = kind if count == 1 else "{" + ", ".join([kind] * count) + "}"
    loaded = state.asm(aggregate, text, constraints, arguments)
    parts = [loaded] if count == 1 else state.fields(loaded, [kind] * count)
    return [state.emit.cast("trunc", part, "i8") if words.kind == "i8" else part for part in parts]


def _load_qualifiers(op: Operation) -> str:
    """Returns the PTX qualifiers of a load that asks for more than the default (PTX ISA, ld)."""
    if attribute(op, "is_volatile"):
        return ".volatile.global"
    return _cache_qualifiers(op, {"ca": ".ca", "cg": ".cg", "cs": ".cs", "cv": ".cv"})


def _cache_qualifiers(op: Operation, operators: dict[str, str]) -> str:
    cache, evict = attribute(op, "cache"), attribute(op, "evict")
    if cache in operators:
        return ".global" + operators[cache]  # a cache operator and an eviction priority exclude each other
    return f".global.L1::{evict}" if evict != "normal" else ""


def masked_store(
    state: Lowering, pointer: Val, words: Words, packed: Sequence[Val], predicate: Val | None, qualifiers: str
) -> None:
    inputs = [f"${index + 1}" for index in range(words.count)]
    list_text = inputs[0] if words.count == 1 else "{" + ", ".join(inputs) + "}"
    condition = f"@${words.count + 1} " if predicate is not None else ""
    if words.kind == "i8":
        packed = [state.emit.cast("zext", word, "i16") for word in packed]
    address = "r" if qualifiers == ".shared" else "l"
    constraints = ",".join([address] + [_CONSTRAINTS[words.kind]] * words.count + (["b"] if predicate is not None else []))
    text = f"{condition}st{qualifiers or '.global'}{_suffix(words)} [$0], {list_text};"
    state.asm("void", text, constraints, [pointer, *packed, *([predicate] if predicate is not None else [])])


def _dependent_launch(instruction: str) -> Callable[[CudaLowering, Operation], None]:
    """griddepcontrol (PTX ISA, from sm_90 on). Elsewhere a launch begins when the one before has ended: nothing to do."""

    def lower(state: CudaLowering, op: Operation) -> None:
        if Feature.DEPENDENT_LAUNCH in state.features.has:
            state.asm("void", f"griddepcontrol.{instruction};", "~{memory}", [])

    return lower


GLOBAL_MEMORY: dict[str, Callable[[CudaLowering, Operation], None]] = {
    "tt.load": load_by(_load_words),
    "tt.store": store_by(_store_words),
    "gpu.gdc_wait": _dependent_launch("wait"),
    "gpu.gdc_launch_dependents": _dependent_launch("launch_dependents"),
}
