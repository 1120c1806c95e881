"""Writes down the hash of every stage of every kernel that a process compiles, and of every file that it generates.

A pytest plugin: `-p tests.same.recorder` with SAME_RECORDS naming a folder. Each process appends to a file of its own there, also
those that tests fork. A kernel that is compiled for one target is lowered to LLVM IR for all others too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelpack.backends.base import Backend, Stage
from kernelpack.backends.installed import backend_of, backends
from kernelpack.compiler import stages
from kernelpack.context import Context
from kernelpack.errors import KernelpackError
from kernelpack.files import generated
from kernelpack.ir.core import Operation
from kernelpack.options import Options
from kernelpack.target import Target

FOLDER = "SAME_RECORDS"
LLVM_IR = "llir"
GENERATED = (".cpp", ".h", ".py")


def digest(value: object) -> str:
    data = value if isinstance(value, bytes) else str(value).encode()
    return hashlib.sha256(data).hexdigest()[:20]


class Recorder:
    """Appends records to the folder: one JSON object a line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.others = True  # whether kernels are lowered for the targets that nobody asked for

    def write(self, key: list[str], stages: dict[str, str]) -> None:
        with (self.folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps({"key": key, "stages": stages}) + "\n")

    def is_first(self, what: str) -> bool:
        """Whether no process has asked this before."""
        try:
            (self.folder / "seen" / digest(what)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def key_of(module: Operation, target: Target, context: Context) -> list[str]:
    """Returns what a kernel is known by: the target, the entry, how it is compiled, and its ttir."""
    how = repr(context.options)
    if getattr(context, "waits_at_once", False):
        how += " cautious"
    if getattr(context, "num_stages", None) not in (None, context.options.num_stages):
        how += " in fewer stages"
    return [str(target), context.entry, how, digest(module)]


def recorded(known: dict[str, Stage], target: Target, backend: Backend, recorder: Recorder) -> dict[str, Stage]:
    """Returns stages that write down what they make. Images that hold line numbers are left out: the text before them says all."""
    last = list(known)[-1]
    key: list[str] = []
    made: dict[str, str] = {}

    def watched(name: str, stage: Stage, value: Any, context: Context) -> Any:
        if not key:
            key.extend(key_of(value, target, context))
        try:
            result = stage(value, context)
        except Exception as problem:
            recorder.write(key, {**made, name: type(problem).__name__})
            raise
        if name != last or not backend.line_information:
            made[name] = digest(result)
        if name in (LLVM_IR, last):
            recorder.write(key, made)
        return result

    return {name: functools.partial(watched, name, stage) for name, stage in known.items()}


def lower(module: Operation, target: Target, options: Options) -> None:
    """Lowers a kernel as far as LLVM IR, for what the stages write down."""
    backend = backend_of(target)
    with contextlib.suppress(KernelpackError):  # refusals of stages are written down too
        stages.legalise(module, backend, target)
        stages.run_stages(module, target, options, until=LLVM_IR)


def install(folder: Path) -> Recorder:
    """Makes this process, and those that it forks, write down what they compile."""
    (folder / "seen").mkdir(parents=True, exist_ok=True)
    recorder = Recorder(folder)
    compile_ttir, write_if_changed = stages._compile_ttir, generated.write_if_changed
    known = [target for backend in backends().values() for target in backend.targets()]

    def all_targets(module: Operation, target: Target, options: Options, *rest: Any) -> Any:
        if recorder.others and recorder.is_first(f"{module}\n{options}"):
            for other in known:
                if other != target:
                    lower(module.clone(), other, options)
        return compile_ttir(module, target, options, *rest)

    def written(path: Path, content: str | bytes) -> bool:
        if path.suffix in GENERATED:
            recorder.write(["generated", path.name], {"text": digest(content)})
        return write_if_changed(path, content)

    stages._compile_ttir, generated.write_if_changed = all_targets, written
    for kind in {type(backend) for backend in backends().values()}:
        kind.stages = _recording(kind.stages, recorder)
    return recorder


def _recording(given: Callable[..., dict[str, Stage]], recorder: Recorder) -> Callable[..., dict[str, Stage]]:
    @functools.wraps(given)
    def recording(backend: Backend, target: Target, options: Options) -> dict[str, Stage]:
        return recorded(given(backend, target, options), target, backend, recorder)

    return recording


def read(folder: Path) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Yields the records of a folder: a key, and a hash for each stage."""
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            yield tuple(record["key"]), record["stages"]


if FOLDER in os.environ:
    install(Path(os.environ[FOLDER]))
