"""Reads what KERNELPACK_TRACE recorded of a running model: which variants its calls need, and what a library lacks of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack.errors import BuildError, TargetError
from kernelpack.files.document import Either, Shape, read_document
from kernelpack.opgen.load import own_library
from kernelpack.runtime.record import BEGINS
from kernelpack.target import Target


@dataclass(frozen=True)
class NeededVariant:
    """A variant that calls ran. `shapes` are the different calls' tensors, as text, with how often each was made, most first.

    `instead` is what a library runs for these calls: the variant itself, the one that assumes nothing, or None: nothing.
    Without a library it is the variant.
    """

    name: str
    op: str
    target: str
    calls: int
    shapes: Mapping[str, int]
    facts: tuple[str, ...]
    instead: str | None


@dataclass(frozen=True)
class Refusal:
    """Calls that the op refused, by what it said."""

    op: str
    message: str
    calls: int
    shapes: Mapping[str, int]


@dataclass(frozen=True)
class Trace:
    """A recorded run. `variants` and `refusals` are ranked by calls."""

    calls: Mapping[str, int]
    """By op, most first."""
    variants: tuple[NeededVariant, ...]
    refusals: tuple[Refusal, ...]
    library: Path | None
    kernels: Mapping[str, int]
    """How many variants of each kernel were launched from Python, most first: `kernelpack adopt` compiles them."""

    @property
    def missed(self) -> int:
        """How many calls the library could not serve."""
        lacking = sum(variant.calls for variant in self.variants if variant.instead is None)
        return lacking + sum(refusal.calls for refusal in self.refusals)


def read_trace(file: Path, library: Path | None = None) -> Trace:
    """Returns what a trace file holds, compared with the library in a folder.

    Without one, it is compared with the library that kernelpack ships if all its ops are that one's. Raises BuildError with the
    line that no op library wrote.
    """
    records, kernels = _records(file)
    if library is None and all(record["op"].startswith("kernelpack::") for record in records):
        library = own_library() if (own_library() / "packs").is_dir() else None
    built = None if library is None else _built(library)
    calls: dict[str, int] = {}
    launches: dict[tuple[str, str, str], _Tally] = {}
    refusals: dict[tuple[str, str], _Tally] = {}
    for record in records:
        shapes, count = _shapes(record["tensors"]), record["calls"]
        calls[record["op"]] = calls.get(record["op"], 0) + count
        if "refused" in record:
            refusals.setdefault((record["op"], record["refused"]), _Tally({})).add(shapes, count)
        else:
            for launch in record["launches"]:
                key = (launch["variant"], record["op"], launch["target"])
                launches.setdefault(key, _Tally({}, tuple(launch["facts"]))).add(shapes, count)
    return Trace(
        dict(_ranked(calls)),
        tuple(
            NeededVariant(
                name, op, target, tally.calls, dict(_ranked(tally.shapes)), tally.facts, _instead(name, target, built)
            )
            for (name, op, target), tally in sorted(launches.items(), key=lambda item: (-item[1].calls, item[0]))
        ),
        tuple(
            Refusal(op, message, tally.calls, dict(_ranked(tally.shapes)))
            for (op, message), tally in sorted(refusals.items(), key=lambda item: (-item[1].calls, item[0]))
        ),
        library,
        dict(_ranked(kernels)),
    )


@dataclass
class _Tally:
    shapes: dict[str, int]
    facts: tuple[str, ...] = ()

    def add(self, shapes: str, calls: int) -> None:
        self.shapes[shapes] = self.shapes.get(shapes, 0) + calls

    @property
    def calls(self) -> int:
        return sum(self.shapes.values())


def _ranked(counts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _records(file: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Returns what the lines of calls say, and how many variants the lines of launches have of each kernel."""
    cure = "run the model with KERNELPACK_TRACE=FILE, then name that file"
    try:
        lines = file.read_bytes().rstrip(b"\n").split(b"\n")
    except OSError as problem:
        raise BuildError(f"{file} cannot be read: {problem.strerror}", cure=cure) from None
    found: list[dict[str, Any]] = []
    kernels: dict[str, set[bytes]] = {}
    for number, line in enumerate(lines if lines != [b""] else [], 1):
        try:
            if line.startswith(BEGINS[1].encode()):
                said = read_document(line, {"kernel": str, ...: object})
                kernels.setdefault(said["kernel"], set()).update([line] if "signature" in said else [])
            else:
                found.append(_record(line))
        except (ValueError, TargetError) as problem:
            shown = line[:60].decode(errors="backslashreplace")
            wrong = f"{file}:{number}: this is no line that KERNELPACK_TRACE wrote: {shown!r}: {problem}"
            raise BuildError(wrong, cure=cure) from None
    if not found and not kernels:
        cure = "run a model that calls ops of a built library, or launches kernels, to its end"
        raise BuildError(f"{file} records no calls", cure=cure)
    return found, {kernel: len(variants) for kernel, variants in kernels.items()}


_CALL: Shape = {
    "op": str,
    "tensors": [Either({"name": str, "dtype": str, "shape": [int], "strides": [int]}, {"name": str})],
    "calls": range(1, 2**63),
}
_LAUNCH: Shape = {"kernel": str, "target": str, "variant": str, "facts": [str]}
_SERVED: Shape = {**_CALL, "launches": [_LAUNCH]}
_REFUSED: Shape = {**_CALL, "launches": [{**_LAUNCH, "variant": str | None}], "refused": str}


def _record(line: bytes) -> dict[str, Any]:
    """Returns what a line says of a call. Raises ValueError and TargetError for one that no op library wrote."""
    text = line.decode()
    record: dict[str, Any] = read_document(
        text, Either(_SERVED, _REFUSED) if '"refused"' not in text else Either(_REFUSED, _SERVED)
    )
    for tensor in record["tensors"]:
        if len(tensor.get("shape", ())) != len(tensor.get("strides", ())):
            raise ValueError(f"{tensor['name']} has {len(tensor['shape'])} sizes and {len(tensor['strides'])} strides")
    for launch in record["launches"]:
        Target.parse(launch["target"])
    return record


def _shapes(tensors: Iterable[Mapping[str, Any]]) -> str:
    """Returns a call's tensors in words: `x float16[8, 1024], bias none`; strides where they are not those of a contiguous one."""
    texts = []
    for tensor in tensors:
        if "dtype" not in tensor:
            texts.append(f"{tensor['name']} none")
            continue
        shape, strides = tensor["shape"], tensor["strides"]
        expected, contiguous = 1, True
        for size, stride in zip(reversed(shape), reversed(strides), strict=True):
            contiguous = contiguous and (size <= 1 or stride == expected)
            expected *= size
        with_strides = "" if contiguous else f" strides {strides}"
        texts.append(f"{tensor['name']} {tensor['dtype']}{shape}{with_strides}")
    return ", ".join(texts)


def _built(library: Path) -> set[str]:
    """Returns the names of a library's kernels, with their targets."""
    packs = library / "packs"
    if not packs.is_dir():
        raise BuildError(f"{library} holds no op library", cure="name the folder that kernelpack build wrote")
    return {path.name.removesuffix(".kpack") for path in packs.glob("*.kpack")}


def _instead(name: str, target: str, built: set[str] | None) -> str | None:
    plain = f"{name.rpartition('.')[0]}.any"
    slug = Target.parse(target).slug
    return next((one for one in (name, plain) if built is None or f"{one}.{slug}" in built), None)
