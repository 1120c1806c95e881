"""ttir as host code walks it by Triton's binding of MLIR: operations, values, blocks and regions, which have numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernelpack.ir import core
from kernelpack.ir.dialect import attribute
from kernelpack.ir.verify import verify


class context:
    """What MLIR keeps types in. ttir needs none; host code makes one and hands it on."""


def load_dialects(where: context) -> None:
    """Prepares a context: all dialects are there."""


@dataclass(frozen=True)
class _View:
    """A part of a module. Parts are equal if they are the same; `id` is a number that no other part of the module has."""

    of: Any

    def id(self) -> int:
        return id(self.of)

    def __str__(self) -> str:
        return str(self.of)


class value(_View):
    """The result of an operation, or an argument of a block."""

    of: core.Value

    def get_type(self) -> str:
        return str(self.of.type)


class region(_View):
    """What an operation encloses."""

    of: core.Region

    def size(self) -> int:
        return len(self.of.blocks)

    def get_parent_operation(self) -> operation | None:
        return None if self.of.parent is None else operation(self.of.parent)


class block(_View):
    """A list of operations with arguments."""

    of: core.Block

    def get_num_arguments(self) -> int:
        return len(self.of.arguments)

    def get_argument(self, index: int) -> value:
        return value(self.of.arguments[index])

    def get_parent(self) -> region | None:
        return None if self.of.parent is None else region(self.of.parent)


class operation(_View):
    """One operation. The attributes are asked for by their kind; None stands for one that it does not have."""

    of: core.Operation

    def get_name(self) -> str:
        return self.of.name

    def get_num_operands(self) -> int:
        return len(self.of.operands)

    def get_operand(self, index: int) -> value:
        return value(self.of.operands[index])

    def get_num_results(self) -> int:
        return len(self.of.results)

    def get_result(self, index: int) -> value:
        return value(self.of.results[index])

    def get_num_regions(self) -> int:
        return len(self.of.regions)

    def get_region(self, index: int) -> region:
        return region(self.of.regions[index])

    def get_block(self) -> block | None:
        return None if self.of.parent is None else block(self.of.parent)

    def get_str_attr(self, name: str) -> str | None:
        found = self._attribute(name)
        return found if isinstance(found, str) else None

    get_flat_symbol_ref_attr = get_str_attr

    def get_bool_attr(self, name: str) -> bool | None:
        found = self._attribute(name)
        return found if isinstance(found, bool) else None

    def get_int_attr(self, name: str) -> int | None:
        found = self._attribute(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def _attribute(self, name: str) -> Any:
        try:
            return attribute(self.of, name)
        except KeyError:
            return None


class module(operation):
    """A module of ttir."""

    def verify(self) -> bool:
        """Returns True. Raises VerifyError, which shows the operation, for a module that is none."""
        verify(self.of)
        return True

    def walk(self, visit: Callable[[operation], object]) -> None:
        """Calls `visit` with each operation after those that it encloses, the module last."""
        for op in _inside_first(self.of):
            visit(operation(op))


def _inside_first(op: core.Operation) -> Iterator[core.Operation]:
    for enclosed in op.regions:
        for part in enclosed.blocks:
            for inner in part.operations:
                yield from _inside_first(inner)
    yield op
