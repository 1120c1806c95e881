"""Tensor maps that a kernel makes itself: of descriptors that are no functions of its arguments.

Each program that runs holds a place in memory of the module, which it takes when it begins and gives back when it ends, with 128
bytes for every descriptor. So launches need no memory, and graphs and streams may run one kernel many times at once. A map is put
together in shared memory by the first warp, whose first thread starts all copies, and then published (PTX ISA, tensormap.replace,
tensormap.cp_fenceproxy, fence.proxy.tensormap). Whoever makes a descriptor again has waited for all copies through the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kernelpack.backends.cuda.lowering.state import CudaLowering
from kernelpack.backends.cuda.machine.block_copies import transfer_of
from kernelpack.backends.cuda.machine.features import LANES
from kernelpack.backends.cuda.machine.shared_uses import MAKE_MAP, TENSOR_MAP_BYTES
from kernelpack.backends.cuda.machine.tensor_map import ALIGNMENT
from kernelpack.backends.gpu.dialect import OFFSET
from kernelpack.backends.gpu.lowering.linear_code import I32, i32
from kernelpack.backends.gpu.lowering.shared_memory import only_if
from kernelpack.backends.gpu.lowering.state import GLOBAL, SHARED
from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import attribute, operand, operands_called
from kernelpack.ir.dialects.descriptors import block_of
from kernelpack.ir.types import TensorDescType, bit_width
from kernelpack.llvm.text import Val

_MULTIPROCESSORS = 144
"""The most that a GPU of compute capability 9.0 has: all of its die (NVIDIA H100 Tensor Core GPU Features, white paper)."""
_WARPS, _BLOCKS, _SHARED, _RESERVED = 64, 32, 228 * 1024, 1024
"""What runs on one of them at a time (CUDA C Programming Guide, "Technical Specifications per Compute Capability")."""
_MAPS, _TAKEN = "@tensor_maps", "@tensor_maps_taken"
_PADDING = {"zero": ("@padding_zero", "zeroinitializer"), "nan": ("@padding_nan", 'c"' + "\\FF" * ALIGNMENT + '"')}
"""What an empty tensor is said to begin with."""

_ELEMENTS = {
    "i8": 0, "f8E4M3FN": 0, "f8E5M2": 0, "i16": 1, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 9, "bf16": 10,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_FILLINGS = {"zero": 0, "nan": 1}
"""What tensormap.replace calls them (PTX ISA, table "Tensormap new_val validity")."""

# tries the places after the first one; where as many programs run as can, each finds one
_TAKE_ANOTHER = """{
.reg .pred free;
.reg .b32 was;
.reg .b64 at;
mov.b64 $0, $1;
again:
add.u64 $0, $0, 1;
and.b64 $0, $0, $3;
shl.b64 at, $0, 2;
add.u64 at, at, $2;
atom.global.relaxed.gpu.exch.b32 was, [at], 1;
setp.eq.u32 free, was, 0;
@free bra done;
bra again;
done:
}"""


@dataclass(frozen=True)
class Place:
    """Where a program keeps the maps of its descriptors, as the first thread of it knows.

    It asks for a place when it begins, and looks at the answer when it makes its first map: `answer` is in memory, and 0 if `number`,
    likewise, is the program's place. LLVM keeps both in registers. Nothing passes from program to program by a place, and copies that
    read its maps have come when it is given back, so the atomics are relaxed: fences would take 0.3 us each.
    """

    number: Val
    answer: Val
    makes: tuple[Operation, ...]
    last: Val
    """The number of the last place."""
    published: list[Val] = field(default_factory=list)
    """Maps that have not been acquired yet."""


def definitions(kernel: Operation, num_warps: int, shared: int) -> list[str]:
    """Returns the memory that a module needs for the maps that its kernel makes: places for all programs that can run at a time."""
    makes = _makes(kernel)
    if not makes:
        return []
    places, paddings = _places(num_warps, shared), {attribute(make, "padding") for make in makes}
    return [
        f"{_MAPS} = internal addrspace(1) global [{places * len(makes) * TENSOR_MAP_BYTES} x i8] zeroinitializer, "
        f"align {TENSOR_MAP_BYTES}",
        f"{_TAKEN} = internal addrspace(1) global [{places} x i32] zeroinitializer, align 4",
        *(
            f"{name} = internal addrspace(1) constant [{ALIGNMENT} x i8] {text}, align {ALIGNMENT}"
            for padding, (name, text) in _PADDING.items()
            if padding in paddings
        ),
    ]


def _makes(kernel: Operation) -> list[Operation]:
    return [op for op in kernel.walk() if op.name == MAKE_MAP]


def _places(num_warps: int, shared: int) -> int:
    blocks = min(_BLOCKS, _WARPS // num_warps, _SHARED // (shared + _RESERVED))
    return 1 << (_MULTIPROCESSORS * blocks - 1).bit_length()


def take_place(state: CudaLowering, kernel: Operation, shared: int) -> None:
    """Asks for a place where a kernel begins, if it makes maps."""
    makes = _makes(kernel)
    if not makes:
        return
    emit, places = state.emit, _places(state.num_warps, shared)
    x, y, z = (emit.call(I32, f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}", []) for axis in "xyz")
    width, height = (emit.call(I32, f"llvm.nvvm.read.ptx.sreg.nctaid.{axis}", []) for axis in "xy")
    program = emit.binary("add", x, emit.binary("mul", width, emit.binary("add", y, emit.binary("mul", height, z))))
    wish = emit.cast("zext", emit.binary("and", program, i32(places - 1)), "i64")
    text = "mov.b32 $0, 0;\n@$1 atom.global.relaxed.gpu.exch.b32 $0, [$2], 1;"
    answer = state.asm(I32, text, "=&r,b,l,~{memory}", [state.first_thread(), _flag(state, wish)])
    place = Place(emit.alloca("i64"), emit.alloca(I32), tuple(makes), Val("i64", str(places - 1)))
    emit.store(wish, place.number, 8)
    emit.store(answer, place.answer, 4)
    state.place = place


def give_place_back(state: CudaLowering) -> None:
    """Gives a place back where a kernel ends: after the waits for all copies."""
    if state.place is not None:
        emit, place = state.emit, state.place
        taken = emit.compare("icmp", "eq", emit.load(I32, place.answer, 4), i32(0))
        gives = emit.binary("and", state.first_thread(), taken)
        text = "{\n.reg .b32 was;\n@$0 atom.global.relaxed.gpu.exch.b32 was, [$1], 0;\n}"
        state.asm("void", text, "b,l,~{memory}", [gives, _flag(state, emit.load("i64", place.number, 8))])


def _flag(state: CudaLowering, number: Val) -> Val:
    """Returns where it says whether a place is taken."""
    return state.emit.offset(Val(GLOBAL, _TAKEN), state.emit.binary("shl", number, Val("i64", "2")))


def _map_of(state: CudaLowering, place: Place, op: Operation) -> Val:
    """Returns where a descriptor's map lies. The first thread looks for another place, if the one that it asked for was taken."""
    emit = state.emit
    refused = emit.compare("icmp", "ne", emit.load(I32, place.answer, 4), i32(0))
    with only_if(state, refused):
        wish = emit.load("i64", place.number, 8)
        number = state.asm("i64", _TAKE_ANOTHER, "=&l,l,l,n,~{memory}", [wish, Val(GLOBAL, _TAKEN), place.last])
        emit.store(number, place.number, 8)
        emit.store(i32(0), place.answer, 4)
    number = state.shuffle("idx", emit.cast("trunc", emit.load("i64", place.number, 8), I32), i32(0))
    size = len(place.makes) * TENSOR_MAP_BYTES
    maps = emit.offset(Val(GLOBAL, _MAPS), emit.binary("mul", emit.cast("zext", number, "i64"), Val("i64", str(size))))
    return emit.offset(maps, place.makes.index(op) * TENSOR_MAP_BYTES)


def _make(state: CudaLowering, op: Operation) -> None:
    emit, place = state.emit, state.place
    assert place is not None, "only kernels make descriptors (lowering/calls.py)"
    target = _map_of(state, place, op)
    sizes = [state.scalar(size) for size in operands_called(op, "shape")]
    some = Val("i1", "true")
    for size in sizes:
        some = emit.binary("and", some, emit.compare("icmp", "sgt", size, i32(0)))
    first_warp = emit.compare("icmp", "ult", state.tid, i32(LANES)) if state.num_warps > 1 else None
    with only_if(state, first_warp):
        memory = emit.offset(state.memory, op.attributes[OFFSET])
        word = emit.binary("shl", state.tid, i32(2))
        emit.store(i32(0), emit.op(SHARED, f"getelementptr i8, {memory}, {word}"), 4)
        emit.call("void", "llvm.nvvm.bar.warp.sync", [i32(-1)])
        with only_if(state, state.first_thread()):
            _replace_fields(state, op, memory, sizes, some)
        emit.call("void", "llvm.nvvm.bar.warp.sync", [i32(-1)])
        publish = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [$0], [$1], 128;"
        state.asm("void", publish, "l,r,~{memory}", [target, emit.cast("ptrtoint", memory, I32)], convergent=True)
        place.published.append(target)
        if not _another_follows(op):
            for published in place.published:
                state.asm("void", "fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", "l,~{memory}", [published])
            place.published.clear()
    state[op.result] = [emit.cast("addrspacecast", target, "ptr"), some]


def _another_follows(op: Operation) -> bool:
    """Whether the kernel makes another map before it uses any: then both are acquired there, and their publications overlap."""
    assert op.parent is not None
    for following in op.parent.operations[op.parent.index(op) + 1 :]:
        if following.name == MAKE_MAP:
            return True
        if any(isinstance(value.type, TensorDescType) for inner in following.walk() for value in inner.operands):
            return False
    return False


def _replace_fields(state: CudaLowering, op: Operation, memory: Val, sizes: list[Val], some: Val) -> None:
    """Writes a map's fields, innermost axis first. An empty tensor is one of a single element, the padding: no field says 0."""
    emit, block, padding = state.emit, block_of(op.result.type), attribute(op, "padding")
    transfer = transfer_of(block)
    assert transfer is not None  # kernel_makes
    width = Val("i64", str(bit_width(block.element) // 8))
    address = emit.cast("ptrtoint", memory, I32)

    def replace(field: str, value: Val, axis: int | None = None) -> None:
        bits = 64 if value.type == "i64" else 32
        where = "" if axis is None else f" {axis},"
        text = f"tensormap.replace.tile.{field}.shared::cta.b1024.b{bits} [$0],{where} $1;"
        letter = "l" if bits == 64 else "n" if not value.name.startswith("%") else "r"
        state.asm("void", text, f"r,{letter},~{{memory}}", [address, value])

    base = emit.select(some, state.scalar(operand(op, "base")), Val(GLOBAL, _PADDING[padding][0]))
    replace("global_address", emit.cast("ptrtoint", base, "i64"))
    replace("rank", i32(block.rank - 1))
    for axis, (size, box) in enumerate(zip(reversed(sizes), reversed(transfer.box), strict=True)):
        replace("global_dim", emit.select(some, size, i32(1)), axis)
        replace("box_dim", i32(box), axis)
        replace("element_stride", i32(1), axis)
    for axis, stride in enumerate(reversed(operands_called(op, "strides")[:-1])):
        step = emit.binary("mul", state.scalar(stride), width)
        replace("global_stride", emit.select(some, step, Val("i64", str(ALIGNMENT))), axis)
    replace("elemtype", i32(_ELEMENTS[str(block.element)]))
    replace("interleave_layout", i32(0))
    replace("swizzle_mode", i32(_SWIZZLES[transfer.swizzle]))
    replace("fill_mode", i32(_FILLINGS[padding]))


TENSOR_MAP: dict[str, Callable[[CudaLowering, Operation], None]] = {MAKE_MAP: _make}
