"""cpu: what a kernel for CPUs does beside its own operations."""

from kernelpack.ir.dialect import Dialect, Effect, attr, row

CPU = Dialect(
    "cpu",
    [
        # ends the launch where an access is not inside; `parameters` are the numbers of those whose tensors it may be in
        row(
            "cpu.check_access",
            "inside: bool, address: int",
            results=0,
            attributes=[attr("message", "str"), attr("parameters", "ints")],
            effects=[Effect.OTHER],
        ),
    ],
)
