"""builtin: the module."""

from kernelpack.ir.dialect import Dialect, Trait, row

BUILTIN = Dialect("builtin", [row("builtin.module", results=0, regions=1, traits=[Trait.ISOLATED])])
