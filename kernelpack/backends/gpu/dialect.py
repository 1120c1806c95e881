"""ttg: what ttgir adds to ttir: layout conversions, tiles in shared memory, asynchronous copies, roles of warps."""

from __future__ import annotations

from collections.abc import Sequence

from kernelpack.ir.core import Attribute, Operation, Value
from kernelpack.ir.dialect import Dialect, Effect, Trait, attr, row, same_as
from kernelpack.ir.types import I32, TOKEN, MemDescType, TensorType, Type, shape_of

OFFSET = "allocation.offset"
"""The attribute that says where in shared memory an allocation, or an operation's scratch space, lies: bytes."""
SHARED = "ttg.shared"
"""The attribute of a called function that says how many bytes of shared memory it needs from where its caller says."""
STRIDE = "allocation.stride"
"""How many bytes further each copy of a role has its own, where several run the operation."""


def _token(operands: Sequence[Value], attributes: dict[str, Attribute]) -> list[Type]:
    return [TOKEN]


def _check_convert(op: Operation) -> str | None:
    before, after = op.operands[0].type, op.result.type
    assert isinstance(before, TensorType)
    same = isinstance(after, TensorType) and (before.shape, before.element) == (after.shape, after.element)
    return None if same else "only the encoding may change"


def _check_same_tile(op: Operation) -> str | None:
    """Checks what copies between registers and shared memory."""
    kinds = [value.type for value in (*op.operands, *op.results) if isinstance(value.type, (TensorType, MemDescType))]
    tiles = {(shape_of(kind), kind.element) for kind in kinds}
    return None if len(tiles) == 1 else f"tiles differ: {', '.join(map(str, kinds))}"


def _check_index(op: Operation) -> str | None:
    before, after = op.operands[0].type, op.result.type
    fits = isinstance(before, MemDescType) and isinstance(after, MemDescType) and before.shape[1:] == after.shape
    return None if fits else f"{before} does not consist of {after}"


def _check_roles(op: Operation) -> str | None:
    *roles, end = op.body.operations
    if end.name != "ttg.warp_return" or any(role.name != "ttg.role" for role in roles):
        return "the region consists of ttg.role operations and a ttg.warp_return"
    return None if roles else "there is no role"


def _check_role(op: Operation) -> str | None:
    num_warps, copies = op.attributes["num_warps"], op.attributes["copies"]
    if num_warps not in (1, 2, 4, 8, 16):
        return f"num_warps = {num_warps} is not 1, 2, 4, 8 or 16"
    if copies < 1:
        return f"copies = {copies} is below 1"
    if [argument.type for argument in op.body.arguments] != [I32]:
        return "the body takes the number of the copy, an i32"
    return None if op.body.terminator.name == "ttg.warp_return" else "the body must end in ttg.warp_return"


def _check_fma_dot(op: Operation) -> str | None:
    a, b, c = (shape_of(value.type) for value in op.operands)
    return None if a[-1] == b[-2] and c == (*a[:-1], b[-1]) else f"shapes do not fit: {a} * {b} -> {c}"


TTG = Dialect(
    "ttg",
    [
        row(
            "ttg.convert_layout",
            "src: tensor",
            traits=[Trait.PURE],
            format="$src attr-dict : type($src) -> type($result)",
            check=_check_convert,
        ),
        # a buffer; with `src`, one that is written here and never again
        row(
            "ttg.local_alloc",
            "src?: tensor",
            attributes=[attr(OFFSET, "i32", default=None)],
            effects=[Effect.ALLOCATE_SHARED],
            format="($src)? attr-dict : functional-type",
            check=_check_same_tile,
        ),
        # ends the life of a buffer: its bytes may be used again
        row(
            "ttg.local_dealloc",
            "src: memdesc",
            results=0,
            effects=[Effect.ALLOCATE_SHARED],
            format="$src attr-dict : type($src)",
        ),
        row(
            "ttg.local_store",
            "src: tensor, dst: memdesc",
            results=0,
            effects=[Effect.WRITE_SHARED],
            format="$src, $dst attr-dict : type($src) -> type($dst)",
            check=_check_same_tile,
        ),
        row(
            "ttg.local_load",
            "src: memdesc, token?: token",
            effects=[Effect.READ_SHARED],
            format="$src (token $token)? attr-dict : type($src) -> type($result)",
            check=_check_same_tile,
        ),
        # one buffer of several
        row(
            "ttg.memdesc_index",
            "src: memdesc, index: int",
            traits=[Trait.PURE],
            format="$src [ $index ] attr-dict : type($src) -> type($result)",
            check=_check_index,
        ),
        row(
            "ttg.memdesc_trans",
            "src: memdesc",
            attributes=[attr("order", "ints")],
            traits=[Trait.PURE],
            format="$src attr-dict : type($src) -> type($result)",
        ),
        # elements under a false mask become zero. `free`: nobody reads the buffer since the last barrier
        row(
            "ttg.async_copy_global_to_local",
            "src: pointer, dst: memdesc, mask?: bool",
            attributes=[attr("free", "bool", default=False)],
            effects=[Effect.READ_GLOBAL, Effect.WRITE_SHARED],
            format="$src, $dst (mask $mask)? attr-dict : type($src) -> type($dst)",
            infer=_token,
        ),
        row(
            "ttg.async_commit_group",
            "tokens*: token",
            effects=[Effect.OTHER],
            format="(tokens $tokens)? attr-dict",
            infer=_token,
        ),
        # waits until at most `num` groups of the calling thread are in flight. `early`: what arrived is read after the next wait
        # for all threads only
        row(
            "ttg.async_wait",
            "tokens*: token",
            attributes=[attr("num", "i32"), attr("early", "bool", default=False)],
            effects=[Effect.WRITE_SHARED, Effect.OTHER],
            format="($tokens)? attr-dict",
            infer=_token,
        ),
        # a product on the ordinary cores: exact float32, operands read from shared memory step by step. `straight`: each product
        # is added to c; otherwise sums of a few are
        row(
            "ttg.fma_dot",
            "a: memdesc, b: memdesc, c: tensor",
            attributes=[attr("straight", "bool", default=False)],
            traits=[Trait.PRODUCT],
            effects=[Effect.READ_SHARED],
            format="$a, $b, $c attr-dict : type($a) * type($b) -> type($result)",
            infer=same_as(2),
            check=_check_fma_dot,
        ),
        # ---- roles: disjoint groups of warps that run different code ----
        # the rest of a kernel: after it, nothing follows
        row("ttg.warp_specialize", results=0, regions=1, effects=[Effect.SYNCHRONISE, Effect.OTHER], check=_check_roles),
        # one role, by `copies` groups of `num_warps` warps; registers 0: as many as the kernel starts with
        row(
            "ttg.role",
            results=0,
            attributes=[attr("num_warps", "i32"), attr("copies", "i32"), attr("registers", "i32")],
            regions=1,
            effects=[Effect.OTHER],
            check=_check_role,
        ),
        row("ttg.warp_return", results=0, traits=[Trait.TERMINATOR], format=""),
    ],
)


OWN_OBJECT = "tt.own_object"
"""The attribute of a tt.func that asks for it."""
