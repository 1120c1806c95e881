"""Which function calls which: the order in which analyses go through a module, and what a call stands for."""

from __future__ import annotations

from kernelpack.errors import CompilationError
from kernelpack.ir.core import Operation, functions


class CallGraph:
    """The functions of a module and the calls between them, as they are when it is made.

    Raises CompilationError, with the line of the call, for recursion and for calls of functions that the module does not have.
    """

    def __init__(self, module: Operation) -> None:
        by_name = {function.attributes["sym_name"]: function for function in functions(module)}
        self.calls: dict[Operation, list[Operation]] = {}
        """The calls in each function, in order."""
        self.callees: dict[Operation, Operation] = {}
        """The function that each call goes to."""
        for function in by_name.values():
            self.calls[function] = [op for op in function.walk() if op.name == "tt.call"]
            for call in self.calls[function]:
                callee = by_name.get(call.attributes["callee"])
                if callee is None:
                    raise CompilationError(
                        f"{call.attributes['callee']} is called, and no function of the kernel is called that",
                        location=call.location.source,
                        cure="define it with @kernelpack.jit, or correct its name",
                    )
                self.callees[call] = callee
        self.order: list[Operation] = []
        """Every function once, callees before their callers."""
        for function in by_name.values():
            self._visit(function, ())

    def callers_first(self) -> list[Operation]:
        return self.order[::-1]

    def sites(self, function: Operation) -> list[Operation]:
        """Returns the calls of a function, in order."""
        return [call for call, callee in self.callees.items() if callee is function]

    def _visit(self, function: Operation, callers: tuple[Operation, ...]) -> None:
        if function in self.order:
            return
        chain = (*callers, function)
        for call in self.calls[function]:
            callee = self.callees[call]
            if callee in chain:
                names = [outer.attributes["sym_name"] for outer in (*chain, callee)]
                raise CompilationError(
                    f"{' calls '.join(names)}: functions of kernels cannot be recursive",
                    location=call.location.source,
                    cure="write a loop",
                )
            self._visit(callee, chain)
        self.order.append(function)


def enclosing_function(op: Operation) -> Operation:
    """Returns the function that an operation is in, or is."""
    return op if op.name == "tt.func" else next(outer for outer in op.ancestors() if outer.name == "tt.func")
