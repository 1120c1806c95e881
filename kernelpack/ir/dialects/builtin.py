"""builtin: the module."""

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import Dialect, Trait, row


def _check_module(op: Operation) -> str | None:
    names = [inner.attributes["sym_name"] for inner in op.body.operations if "sym_name" in inner.attributes]
    twice = [name for name in names if names.count(name) > 1]
    return f"two functions are called {twice[0]}" if twice else None


BUILTIN = Dialect("builtin", [row("builtin.module", results=0, regions=1, traits=[Trait.ISOLATED], check=_check_module)])
