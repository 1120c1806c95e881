"""TMA: where copies put a block, which descriptors become tensor maps, what is recorded of them, and what becomes of the others."""

from __future__ import annotations

import itertools
import math

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.machine.block_copies import Transfer, transfer_of
from kernelpack.compiled import CompiledKernel, Parameter
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.descriptors import launcher_text
from kernelpack.errors import CompilationError, UnsupportedError
from kernelpack.facts import Fact
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.types import BF16, F8E5M2, F16, F32, F64, I8, TensorType, Type, bit_width
from kernelpack.kernel.jit import JITFunction
from kernelpack.language import hopper
from kernelpack.options import Options
from kernelpack.target import Target

# ---- boxes ----


def written_by(transfer: Transfer, block: TensorType) -> dict[int, tuple[int, ...]]:
    """Returns which element of a block the copies put at each place of the buffer, as the hardware does (PTX ISA, "Tensor
    swizzling modes"): boxes row by row, the 16-byte chunks of an address exchanged by the number of its 128-byte line."""
    width = bit_width(block.element) // 8
    mask = {128: 7, 64: 3, 32: 1, 0: 0}[transfer.swizzle]
    found: dict[int, tuple[int, ...]] = {}
    for piece in transfer.pieces:
        for number, place in enumerate(itertools.product(*map(range, transfer.box))):
            address = (piece.offset + number) * width
            address ^= (address >> 7 & mask) << 4
            coords = tuple(start + at for start, at in zip(piece.start, place, strict=True))
            assert address // width not in found
            found[address // width] = tuple(at for at, extent in zip(coords, block.shape, strict=True) if extent > 1)
    return found


@pytest.mark.parametrize(
    ("shape", "element", "swizzle", "copies"),
    [
        ((128, 64), BF16, 128, 1),
        ((64, 128), BF16, 128, 2),
        ((64, 256), F16, 128, 4),
        ((512, 64), BF16, 128, 2),  # a box has 256 rows
        ((4, 64), BF16, 128, 1),
        ((4, 128), BF16, 0, 1),  # two panels of four rows would each begin the swizzle's pattern anew
        ((1, 64, 1, 128), F16, 128, 2),
        ((4, 16, 64), F16, 128, 1),
        ((4, 16, 128), F16, 128, 8),
        ((4, 4, 32), F16, 0, 1),
        ((64, 32), F32, 128, 1),
        ((64, 16), F16, 32, 1),
        ((64, 8), F16, 0, 1),
        ((1024,), F32, 0, 4),
        ((16, 256), F8E5M2, 128, 2),
        ((16, 32), F64, 128, 2),
        ((1, 512), F16, 0, 2),
    ],
)
def test_copies_put_every_element_where_the_layout_has_it(
    shape: tuple[int, ...], element: Type, swizzle: int, copies: int
) -> None:
    block = TensorType(shape, element)
    transfer = transfer_of(block)
    assert transfer is not None
    assert (transfer.swizzle, len(transfer.pieces)) == (swizzle, copies)
    assert max(transfer.box) <= 256
    assert transfer.box[-1] * bit_width(element) // 8 <= (swizzle or 1 << 30)
    assert transfer.encoding.alignment >= 8 * swizzle
    written = written_by(transfer, block)
    assert len(written) == math.prod(shape)
    for offset, place in written.items():
        assert transfer.encoding.layout(offset=offset) == place


def test_blocks_that_are_no_runs_of_boxes_are_left_to_pointers() -> None:
    assert transfer_of(TensorType((4, 512), I8)) is None


# ---- which descriptors ----


@kp.jit
def copy_kernel(a, b, m, n, stride, MODE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    if MODE == "offset":
        d = tl.make_tensor_descriptor(a + n * 8, [m * 2, (n + 3) // 4], [stride + 16, 1], [BM, BN], padding_option="nan")
    elif MODE == "by program":
        d = tl.make_tensor_descriptor(a + tl.program_id(1) * 16, [m, n], [stride, 1], [BM, BN])
    elif MODE == "loaded":
        d = tl.make_tensor_descriptor(a, [tl.load(b).to(tl.int32), n], [stride, 1], [BM, BN])
    else:
        d = tl.make_tensor_descriptor(a, [m, n], [stride, 1], [BM, BN])
    e = tl.make_tensor_descriptor(b, [m, n], [n, 1], [BM, BN])
    e.store([tl.program_id(0) * BM, 0], d.load([tl.program_id(0) * BM, 0]))


def compiled(
    kernel: JITFunction = copy_kernel,
    target: str = "cuda:sm_90a",
    aligned: str = "a b n stride",
    element: str = "fp16",
    **constexprs: object,
) -> CompiledKernel:
    facts = tuple(Fact(name, "tt.divisibility", 16) for name in aligned.split())
    types = {"a": f"*{element}", "b": f"*{element}", "m": "i32", "n": "i32", "stride": "i64"}
    module = ast_to_ttir(kernel, types, {"MODE": "", "BM": 64, "BN": 128, **constexprs}, facts)
    return compile_ttir(optimise_ttir(module), Target.parse(target), Options(), facts)


def test_descriptors_of_arguments_become_parameters_after_the_others() -> None:
    kernel = compiled()
    assert kernel.descriptors == (
        "f16; base: a; sizes: m, n; strides: stride; box: 64, 64; swizzle: 128; padding: zero",
        "f16; base: b; sizes: m, n; strides: n; box: 64, 64; swizzle: 128; padding: zero",
    )
    assert [parameter.name for parameter in kernel.parameters] == ["a", "b", "m", "n", "stride"]
    assert kernel.stages["ptx"].count(".param .align 64 .b8 ") == 2
    assert kernel.stages["ptx"].count("cp.async.bulk.tensor.2d.shared::cluster.global") == 2
    assert kernel.stages["ptx"].count("cp.async.bulk.tensor.2d.global.shared::cta") == 2
    assert "ld.global" not in kernel.stages["ptx"]


def test_expressions_of_arguments_are_recorded() -> None:
    assert compiled(MODE="offset").descriptors[0] == (
        "f16; base: a n 8 * 2 * +; sizes: m 2 *, n 3 + 4 /; strides: stride 16 +; box: 64, 64; swizzle: 128; padding: nan"
    )


@pytest.mark.parametrize(
    ("aligned", "constexprs"),
    [
        ("b n stride", {}),
        ("a b n", {}),
        ("a b n stride", {"MODE": "by program"}),
        ("a b n stride", {"MODE": "loaded"}),
    ],
)
def test_other_descriptors_become_masked_pointers(aligned: str, constexprs: dict[str, str]) -> None:
    kernel = compiled(aligned=aligned, **constexprs)
    assert len(kernel.descriptors) == 1  # of what is stored
    assert "shared::cluster.global" not in kernel.stages["ptx"]
    assert "ld.global" in kernel.stages["ptx"]


@kp.jit
def loops(a, b, m, n, stride, MODE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(a + tl.program_id(1) * 16, [m, n], [stride, 1], [BM, BN])
    e = tl.make_tensor_descriptor(b + tl.program_id(1) * 16, [m, n], [stride, 1], [BM, BN])
    if MODE == "ahead":
        x = d.load([0, 0])
        for i in range(BM, m, BM):
            x += d.load([i, 0])
        e.store([0, 0], x)
    elif MODE == "one by one":
        for i in range(0, m, BM):
            e.store([i, 0], d.load([i, 0]))


@pytest.mark.parametrize(("mode", "maps"), [("ahead", 1), ("one by one", 0)])
def test_kernels_make_maps_for_copies_that_run_ahead(mode: str, maps: int) -> None:
    kernel = compiled(loops, MODE=mode)
    assert kernel.descriptors == ()
    assert kernel.stages["ptx"].count("tensormap.cp_fenceproxy") == maps
    assert ("shared::cluster.global" in kernel.stages["ptx"]) == bool(maps)
    assert "global.shared::cta" not in kernel.stages["ptx"].replace("cp_fenceproxy.global.shared::cta", "")


@kp.jit
def shifted(a, b, m, n, stride, MODE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(a, [m, n], [stride, 1], [BM, BN])
    e = tl.make_tensor_descriptor(b, [m, n], [stride, 1], [BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    if MODE == "load: column":
        e.store([i, j], d.load([i, j + m]))
    elif MODE == "load: row":
        e.store([i, j], d.load([i + m, j - 16]))
    elif MODE == "store: column":
        e.store([i, j + m], d.load([i, j]))
    elif MODE == "store: row":
        e.store([i + m, j], d.load([i, j]))


@pytest.mark.parametrize(
    ("mode", "aligned", "loads", "stores"),
    [
        ("load: column", "a b n stride", False, True),  # columns must be multiples of 16 bytes
        ("load: row", "a b n stride", True, True),  # rows need not be, and may be negative
        ("store: column", "a b n stride", True, False),
        ("store: row", "a b n stride", True, True),
        ("load: row", "a b stride", True, False),  # a store writes whole 16 bytes at the end of a row
    ],
)
def test_what_tma_would_do_otherwise_goes_through_pointers(mode: str, aligned: str, loads: bool, stores: bool) -> None:
    ptx = compiled(shifted, aligned=aligned, MODE=mode).stages["ptx"]
    assert ("shared::cluster.global" in ptx, "global.shared::cta" in ptx) == (loads, stores)
    assert ("ld.global" in ptx, "st.global" in ptx) == (not loads, not stores)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
def test_other_architectures_have_no_tensor_maps(target: str) -> None:
    kernel = compiled(target=target)
    assert kernel.descriptors == ()
    assert "bulk" not in kernel.stages["ptx"]


def test_rows_that_tma_cannot_take_go_through_pointers() -> None:
    assert compiled(element="i8", BM=4, BN=512).descriptors == ()


def test_kernels_that_differ_in_their_maps_differ() -> None:
    one, other = compiled(), compiled(BM=64, BN=128, MODE="offset")
    assert one.code_sha256 != other.code_sha256


@kp.jit
def fill(copy, d, tile, full):
    hopper.mbarrier_expect(full, tile.nbytes)
    hopper.async_load(d, [0, 0], tile, full)


@kp.jit
def role_kernel(a, b, m, n, stride, MODE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(a + tl.program_id(0) * 16, [m, n], [stride, 1], [BM, BN])
    tile = hopper.local_alloc([BM, BN], tl.float16)
    full = hopper.mbarrier_alloc(1)
    hopper.warp_specialize(hopper.role(fill, (d, tile, full), num_warps=1))


def test_a_copy_by_hand_needs_a_tensor_map() -> None:
    with pytest.raises(
        CompilationError, match=r"cannot be handed to TMA: .* not functions of the kernel's arguments"
    ) as caught:
        compiled(role_kernel)
    assert caught.value.location is not None


@kp.jit
def shifted_role_kernel(a, b, m, n, stride, MODE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(a, [m, n], [stride, 1], [BM, BN])
    tile = hopper.local_alloc([BM, BN], tl.float16)
    full = hopper.mbarrier_alloc(1)
    hopper.warp_specialize(hopper.role(fill_at, (d, tile, full, m), num_warps=1))


@kp.jit
def fill_at(copy, d, tile, full, column):
    hopper.mbarrier_expect(full, tile.nbytes)
    hopper.async_load(d, [0, column], tile, full)


def test_a_copy_by_hand_needs_aligned_columns() -> None:
    with pytest.raises(CompilationError, match="cannot be handed to TMA: its last coordinate is not known") as caught:
        compiled(shifted_role_kernel)
    assert caught.value.location is not None


@kp.jit
def load_in_role(copy, d, out):
    tl.store(out + tl.arange(0, 64), tl.sum(d.load([0, 0]).to(tl.float32), 1).to(tl.float16))


@kp.jit
def waiting_role_kernel(a, b, m, n, stride, MODE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(a, [m, n], [stride, 1], [BM, BN])
    hopper.warp_specialize(hopper.role(load_in_role, (d, b), num_warps=4))


def test_roles_say_who_waits_for_a_copy() -> None:
    with pytest.raises(UnsupportedError, match="load of a tensor descriptor inside of a role") as caught:
        compiled(waiting_role_kernel)
    assert caught.value.location is not None
    assert "hopper.async_load" in str(caught.value)


def test_launchers_read_numbers_for_parameters() -> None:
    parameters = [Parameter("a", "!tt.ptr<f16>"), Parameter("x", "f32"), Parameter("ab", "i32"), Parameter("b", "i64")]
    maps = ("f16; base: a ab 2 * +; sizes: ab; strides: ; box: 64; swizzle: 0; padding: zero",)
    assert launcher_text(maps, parameters) == (
        "pxil\nf16; base: $0 $2 2 * +; sizes: $2; strides: ; box: 64; swizzle: 0; padding: zero"
    )
    assert launcher_text((), parameters) == ""
