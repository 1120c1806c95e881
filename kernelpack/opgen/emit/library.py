"""What a library is printed from: its ops with their variants, and the packs of their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelpack.backends.base import Backend, LauncherSource
from kernelpack.errors import BuildError
from kernelpack.facts import Test
from kernelpack.opgen.variants.plan import OpPlan
from kernelpack.pack.format import KernelPack
from kernelpack.target import Target


@dataclass(frozen=True)
class LibraryPlan:
    """Everything a library is printed from. `backends` are in the order of their first target."""

    namespace: str
    version: str
    build_command: str
    ops: tuple[OpPlan, ...]
    backends: tuple[Backend, ...]
    targets: Mapping[str, tuple[Target, ...]]
    """By backend."""
    packs: Mapping[str, KernelPack]
    """By entry."""
    line_tables: bool = False
    """Whether images say which line of source their code comes from, where a backend can leave that out."""

    def packs_of(self, backend: Backend) -> list[KernelPack]:
        """Returns a backend's kernels in the order of its array."""
        found = [pack for pack in self.packs.values() if pack.target.backend == backend.name]
        return sorted(found, key=lambda pack: (self.targets[backend.name].index(pack.target), pack.variant))

    def image_of(self, pack: KernelPack, backend: Backend) -> bytes:
        """Returns what the library holds of a pack's image."""
        return pack.image if self.line_tables else backend.without_lines(pack.image)

    @property
    def checked(self) -> bool:
        """Whether its kernels check their accesses."""
        return any(pack.options.checked for pack in self.packs.values())

    @property
    def holds_images(self) -> bool:
        """Whether some backend's images are data, which the library unpacks."""
        return not all(map(self.is_linked, self.backends))

    @property
    def launchers(self) -> list[LauncherSource]:
        """The backends' launchers, which all backends of a library have."""
        return [launcher for backend in self.backends if (launcher := backend.launcher) is not None]

    def is_linked(self, backend: Backend) -> bool:
        """Whether a backend's images are objects, which are linked into the library."""
        return any(backend.linked_machine(target) is not None for target in self.targets[backend.name])

    @property
    def tests(self) -> Mapping[str, Test]:
        """How each property that variants assume is decided. Raises BuildError where two backends mean different things by one."""
        found: dict[str, tuple[Backend, Test]] = {}
        for backend in self.backends:
            for prop in backend.properties():
                other, test = found.setdefault(prop.name, (backend, prop.test))
                if test.guard != prop.test.guard:
                    raise BuildError(
                        f"backends {other.name} and {backend.name} test for {prop.name} differently",
                        cure="build a library for each of them",
                    )
        return {name: test for name, (_, test) in found.items()}
