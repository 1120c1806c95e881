"""GPUTarget: how host code written for Triton names what is compiled for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelpack.errors import TargetError
from kernelpack.target import Target


@dataclass(frozen=True)
class GPUTarget:
    """A backend (`cuda`, `cpu`), its architecture (90 or "sm90" for sm_90, a level's name on a CPU), and the threads of a warp."""

    backend: str
    arch: int | str
    warp_size: int = 32

    @classmethod
    def of(cls, target: Target) -> GPUTarget:
        """Returns how host code names a target: sm_90a is 90."""
        arch = target.arch.removeprefix("sm_").rstrip("a") if target.backend == "cuda" else target.arch
        return cls(target.backend, int(arch) if arch.isdigit() else arch)

    def as_target(self) -> Target:
        """Returns the target that kernelpack compiles for. From sm_90 on that is the one with the architecture's own
        instructions, sm_90a."""
        numbered = re.fullmatch(r"(sm)?(\d+)", str(self.arch))
        if self.backend == "cuda" and numbered is not None:
            return Target("cuda", f"sm_{numbered[2]}{'a' if int(numbered[2]) >= 90 else ''}")
        if not isinstance(self.arch, str):
            raise TargetError(f"{self} names no target", cure='write for example GPUTarget("cuda", 90, 32)')
        return Target(self.backend, self.arch)
