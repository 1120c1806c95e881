"""cpu: what a kernel for CPUs does beside its own operations."""

from kernelpack.ir.dialect import Dialect, Effect, Trait, attr, row, same_as

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
        # asks for what is read soon, which changes nothing
        row("cpu.prefetch", "ptr: pointer", results=0, effects=[Effect.OTHER]),
        # acc and the sum of the products of the four bytes of a with those of b; unsigned bytes of a are at most `a_most`
        row(
            "cpu.dot_bytes",
            "a: int, b: int, acc: int",
            attributes=[attr("a_signed", "bool"), attr("b_signed", "bool"), attr("a_most", "i32", default=255)],
            traits=[Trait.PURE, Trait.ELEMENTWISE, Trait.SAME_TYPE],
            infer=same_as(2),
        ),
    ],
)
