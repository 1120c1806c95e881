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
        # asks for what is read soon, which changes nothing: `bytes` from each pointer of a tile on, or an element
        row("cpu.prefetch", "ptr: pointer", results=0, attributes=[attr("bytes", "i64", default=0)], effects=[Effect.OTHER]),
        # acc and, of each two factors a and b, the sum of the products of a's four bytes with b's; unsigned bytes of a are at most `a_most`
        row(
            "cpu.dot_bytes",
            "acc: int, factors*: int",
            attributes=[attr("a_signed", "bool"), attr("b_signed", "bool"), attr("a_most", "i32", default=255)],
            traits=[Trait.PURE, Trait.ELEMENTWISE, Trait.SAME_TYPE],
            infer=same_as(0),
        ),
    ],
)
