"""A backend for one target, as code written for Triton asks it, and the hook by which that code changes a backend's stages."""

from __future__ import annotations

import enum
import hashlib
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from kernelpack import knobs
from kernelpack.backends.base import Backend, Stage
from kernelpack.backends.installed import backend_of
from kernelpack.context import Context
from kernelpack.errors import OptionError
from kernelpack.ir.core import Operation
from kernelpack.ir.verify import verify
from kernelpack.options import OPTION_NAMES, Options, options_of
from kernelpack.target import GPUTarget, Target

StagesHook = Callable[..., Any]
"""Called with (backend, stages, options, language, capability), it may replace stages: functions of a value and the metadata that return
the next value. Called without arguments, it returns a key and a hash of what it does, which keys of kernels then hold."""


class Language(enum.Enum):
    """The language of a kernel: here always Triton's."""

    TRITON = 0
    GLUON = 1


@dataclass(frozen=True)
class TargetOptions(Options):
    """Options, and what they are for: `arch` is the whole target, such as `cuda:sm_90a`."""

    arch: str = ""

    @property
    def plain(self) -> Options:
        """The options alone."""
        return Options(**{name: getattr(self, name) for name in OPTION_NAMES})

    def hash(self) -> str:
        """Returns a hash of all of them."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()


class TargetBackend:
    """A backend for one target. Raises TargetError for a target that it does not build."""

    kind: ClassVar[str | None] = None
    """The backend's name, in classes for one backend."""

    def __init__(self, target: GPUTarget | Target) -> None:
        wanted = target.as_target() if isinstance(target, GPUTarget) else target
        self.backend: Backend = backend_of(wanted)
        self.resolved = self.backend.resolve_target(wanted)
        self.target = GPUTarget.of(self.resolved)
        self.binary_ext = self.backend.image_kind

    @classmethod
    def supports_target(cls, target: GPUTarget) -> bool:
        """Whether the class compiles for such targets."""
        return cls.kind in (None, target.backend)

    def hash(self) -> str:
        """Returns what of the target and of tools decides code."""
        return f"{self.resolved} {self.backend.cache_key()}"

    def parse_options(self, opts: Mapping[str, Any]) -> TargetOptions:
        """Returns the options that are given, and for the others what environment variables say, or else the defaults. Names that are no
        options are passed over, as in Triton."""
        known = {name: opts[name] for name in OPTION_NAMES if name in opts}
        arch = opts.get("arch")
        target = self.resolved if arch is None else target_of(self.backend.name, arch)
        return TargetOptions(**asdict(options_of(known)), arch=str(self.backend.resolve_target(target)))

    @staticmethod
    def parse_attr(desc: str | Sequence[tuple[str, int]]) -> list[list[Any]]:
        """Returns facts of an argument in the form of ASTSource, as a call's specialization has them, or as Triton says them: "D" for what is
        divisible by 16."""
        if isinstance(desc, str):
            return [["tt.divisibility", 16]] if "D" in desc else []
        return [list(fact) for fact in desc]

    def load_dialects(self, context: object) -> None:
        """Prepares what ASTSource.make_ir works in: all dialects are there."""

    def get_codegen_implementation(self, options: object = None) -> dict[str, Any]:
        """Returns what a backend adds to the front end: nothing."""
        return {}

    def get_module_map(self) -> dict[str, Any]:
        """Returns which modules of kernels stand for others on this backend: none."""
        return {}


def target_of(backend: str, arch: str) -> Target:
    """Returns the target that an option `arch` names: `sm90`, or a whole one such as `cuda:sm_90a`. Raises TargetError."""
    return Target.parse(arch) if ":" in arch else GPUTarget(backend, arch).as_target()


def stages_hook() -> StagesHook | None:
    """Returns knobs.runtime.add_stages_inspection_hook."""
    hook: StagesHook | None = knobs.runtime.add_stages_inspection_hook
    return hook


def inspection() -> tuple[str, str]:
    """Returns the key and the hash of what the hook does to stages; ("", "") without one. Raises OptionError for a hook that says none."""
    hook = stages_hook()
    if hook is None:
        return "", ""
    said = hook()
    if not (isinstance(said, tuple) and len(said) == 2):
        raise OptionError(
            f"knobs.runtime.add_stages_inspection_hook returned {said!r} when it was called without arguments",
            cure="return a key and a hash of what it does to stages: kernels are kept under them",
        )
    return str(said[0]), str(said[1])


def inspected(stages: Mapping[str, Stage], context: Context, hook: StagesHook) -> dict[str, Stage]:
    """Returns a backend's stages as a hook leaves them. The first one that it sees is `ttir`, which gives the kernel's ttir as it is."""
    backend = TargetBackend(context.target)
    options = TargetOptions(**asdict(context.options), arch=str(context.target))
    capability = backend.target.arch if isinstance(backend.target.arch, int) else None
    metadata = ChainMap(context.figures, {"target": backend.target, **asdict(options)})
    seen = {name: _without_context(stage, context) for name, stage in {"ttir": _as_it_is, **stages}.items()}
    hook(backend, seen, options, Language.TRITON, capability)
    return {name: _with_metadata(stage, metadata) for name, stage in seen.items()}


def _as_it_is(value: Any, context: Context) -> Any:
    return value


def _without_context(stage: Stage, context: Context) -> Stage:
    return lambda value, metadata: stage(value, context)


def _with_metadata(stage: Stage, metadata: MutableMapping[str, Any]) -> Stage:
    def run(value: Any, context: Context) -> Any:
        made = stage(value, metadata)
        if isinstance(made, Operation):
            verify(made)
        return made

    return run
