"""From a kernel's source to an image for one target: runs the front end, the ttir passes and the backend's stages."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpack.backends.base import Backend, Fact, Lowered, Options, Parameter
from kernelpack.backends.installed import backend_of
from kernelpack.compiler import errors as errors
from kernelpack.compiler.recursion import deep_recursion
from kernelpack.errors import BuildError, OutOfResources, UnsupportedError
from kernelpack.errors import CompilationError as CompilationError
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.verify import verify
from kernelpack.knobs.hooks import CompileTimes
from kernelpack.lazy import lazy_names
from kernelpack.llvm.debug_info import user_location
from kernelpack.passes import TTIR_PASSES
from kernelpack.passes.descriptors_to_pointers import descriptors_to_pointers
from kernelpack.passes.inline import inline
from kernelpack.target import Target


@dataclass(frozen=True)
class CompiledKernel:
    """An image with everything a pack header and a launcher need.

    `stages` holds every stage's value by name (`ttir`, then the backend's); `metadata` holds the backend's resource
    figures (`shared`, `num_warps`, `registers`, `spills`, ...). `code_sha256` is that of the last stage that is text, whatever
    the entry is called: kernels with equal code do the same.
    """

    entry: str
    target: Target
    options: Options
    parameters: tuple[Parameter, ...]
    facts: tuple[Fact, ...]
    image_kind: str
    image: bytes
    metadata: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, Any] = field(default_factory=dict)
    code_sha256: str = ""


def optimise_ttir(module: Operation, *, after_each: Callable[[str, Operation], None] | None = None) -> Operation:
    """Runs the target-independent passes on a module in place and returns it; `after_each` sees it after every pass."""
    for run in TTIR_PASSES:
        run(module)
        if after_each is not None:
            after_each(run.__name__, module)
    return module


def legalise(module: Operation, backend: Backend, target: Target) -> None:
    """Replaces in place what a backend leaves to others: calls, descriptors. Raises UnsupportedError, with the user's line, for
    operations that it refuses."""
    verify(module)
    if inline(module, may_stay=lambda call: backend.supports(call, target) is None):  # noinline is a wish, not always granted
        optimise_ttir(module)
    while descriptors_to_pointers(module, lambda op, facts: backend.descriptor_form(op, facts, target)):
        optimise_ttir(module)  # which may change what is known of the others
    for op in module.walk():
        reason = backend.supports(op, target)
        if reason is not None:
            raise UnsupportedError(
                f"{op.name} cannot be compiled for {target}: {reason}", location=user_location(op.location).source
            )


@deep_recursion
def compile_ttir(
    module: Operation,
    target: Target,
    options: Options,
    facts: tuple[Fact, ...] = (),
    *,
    keep_stages: bool = True,
    times: CompileTimes | None = None,
) -> CompiledKernel:
    """Compiles an optimised ttir module for a target.

    The module's public function is the kernel; `facts` are those its `arg_attrs` state. With `keep_stages` False no stage is
    printed that nobody needs to go on, and `stages` is empty. `times` gets what each stage took. Raises UnsupportedError with the
    user's line where the backend refuses an operation.
    """
    backend = backend_of(target)
    target = backend.resolve_target(target)
    legalise(module, backend, target)
    function = entry_function(module)
    parameters = tuple(Parameter(argument.name, str(argument.type)) for argument in function.body.arguments)
    lowered = Lowered(target, options, function.attributes["sym_name"])
    through_stages = functools.partial(_through_stages, module, backend, keep_stages=keep_stages, times=times)
    try:
        made = through_stages(lowered)
    except (BuildError, OutOfResources):
        if not lowered.runs_ahead:
            raise
        lowered = Lowered(target, options, lowered.entry, cautious=True)
        made = through_stages(lowered)
    code = backend.code_of(made.text).replace(lowered.entry, "")
    return CompiledKernel(
        lowered.entry, target, options, parameters,
        tuple(fact for fact in facts if fact not in lowered.unused), made.kind, made.image, lowered.metadata, made.stages,
        hashlib.sha256("\n".join([code, *lowered.metadata.get("tensor_maps", ())]).encode()).hexdigest(),
    )  # fmt: skip


@dataclass(frozen=True)
class _Made:
    """What a backend's stages made: the image with the last stage's name, the last stage that is text, and each stage."""

    kind: str
    image: bytes
    text: str
    stages: dict[str, Any]


def _through_stages(
    module: Operation, backend: Backend, lowered: Lowered, *, keep_stages: bool, times: CompileTimes | None
) -> _Made:
    value: Any = module
    text = value
    name = "ttir"
    stages: dict[str, Any] = {"ttir": str(module)} if keep_stages else {}
    for name, stage in backend.stages(lowered.target, lowered.options).items():
        started = time.perf_counter()
        value = stage(value, lowered)
        if times is not None:
            times.lowering_stages.append((name, microseconds_since(started)))
        if not isinstance(value, bytes):
            text = value
        if keep_stages:
            stages[name] = value if isinstance(value, bytes) else str(value)
    assert isinstance(value, bytes), f"the last stage of {backend.name} must give bytes"
    return _Made(name, value, str(text), stages)


def microseconds_since(started: float) -> int:
    """Returns how long ago `time.perf_counter()` was `started`."""
    return int(1e6 * (time.perf_counter() - started))


@functools.cache
def source_hash(*more: str) -> str:
    """Returns the hash of the compiler's own source, and of `more` files of kernelpack: a changed compiler compiles anew."""
    root = Path(__file__).parents[1]
    rooms = ("frontend", "language", "ir", "passes", "analysis", "layout", "llvm", "backends")
    files = [path for room in rooms for path in sorted((root / room).rglob("*.py"))]
    digest = hashlib.sha256()
    for path in [*files, *(root / name for name in ("compiler/__init__.py", "target.py", *more))]:
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


# offline builds have sources of their own
__getattr__ = lazy_names(__name__, {"compiler.compiler": ("ASTSource", "compile", "make_backend")})
