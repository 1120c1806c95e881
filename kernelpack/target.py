"""Target: what code is generated for. `cuda:sm_90a` and `cpu:x86-64-v4+avx512bf16` parse and print."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelpack.errors import TargetError

_FORM = re.compile(r"(?P<backend>[a-z][a-z0-9_]*):(?P<arch>[A-Za-z0-9_-]+)(?P<features>(\+[a-z0-9_-]+)*)")


@dataclass(frozen=True, order=True)
class Target:
    """A backend's name, an architecture that the backend knows, and extra features, sorted.

    The backend decides which architectures and features exist (`Backend.check_target`).
    """

    backend: str
    arch: str
    features: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Target:
        """Parses `backend:arch[+feature...]`. Raises TargetError."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise TargetError(
                f"target {text!r} does not have the form backend:arch[+feature...]",
                cure="write for example cuda:sm_90a, cpu:native or cpu:x86-64-v4+avx512bf16",
            )
        features = tuple(sorted(set(filter(None, match["features"].split("+")))))
        return Target(match["backend"], match["arch"], features)

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}" + "".join(f"+{feature}" for feature in self.features)

    @property
    def slug(self) -> str:
        """The target as part of a file or symbol name: letters, digits and underscores."""
        return re.sub(r"[^A-Za-z0-9]", "_", str(self))


@dataclass(frozen=True)
class GPUTarget:
    """A backend (`cuda`, `cpu`), its architecture (90 or "sm90" for sm_90, a level's name on a CPU), and the threads of a warp."""

    backend: str
    arch: int | str
    warp_size: int = 32

    @classmethod
    def of(cls, target: Target) -> GPUTarget:
        """Returns how host code names a target: sm_90a is 90."""
        if target.backend != "cuda":
            return cls(target.backend, str(target).partition(":")[2])
        arch = target.arch.removeprefix("sm_").rstrip("a")
        return cls(target.backend, int(arch) if arch.isdigit() else arch)

    def as_target(self) -> Target:
        """Returns the target that kernelpack compiles for. From sm_90 on that is the one with the architecture's own
        instructions, sm_90a. An empty one is that of this machine, which is what torch knows of CPUs."""
        numbered = re.fullmatch(r"(sm)?(\d+)", str(self.arch))
        if self.backend == "cuda" and numbered is not None:
            return Target("cuda", f"sm_{numbered[2]}{'a' if int(numbered[2]) >= 90 else ''}")
        if not isinstance(self.arch, str):
            raise TargetError(f"{self} names no target", cure='write for example GPUTarget("cuda", 90, 32)')
        return Target.parse(f"{self.backend}:{self.arch or 'native'}")
