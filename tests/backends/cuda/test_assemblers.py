"""What assemblers say: figures that are noted, and messages that fail a build because they mean other code than was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.base import Failed
from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.assemble import ptx_to_cubin
from kernelpack.backends.cuda.assemble.ptx_to_cubin import Assembled
from kernelpack.backends.cuda.assemble.ptxas import Ptxas
from kernelpack.backends.cuda.context import Attempt, CudaContext
from kernelpack.errors import BuildError, KernelpackError, OutOfResources
from kernelpack.language import hopper
from kernelpack.options import Options
from kernelpack.simt.compile import compile_program
from kernelpack.target import Target
from tests.backends.cuda.cases import cases
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.product_cases import Product
from tests.backends.cuda.running import lower, run_every_schedule
from tests.frontend.kernels import vector_add

ELF = b"\x7fELF"
OLD_PTXAS = Path(__file__).parents[3] / ".venv" / "ptxas-13.0" / "nvidia" / "cu13" / "bin" / "ptxas"
"""ptxas of CUDA 13.0, which says what newer ones do silently (requirements-ptxas.txt)."""
needs_old_ptxas = pytest.mark.skipif(not OLD_PTXAS.is_file(), reason="make setup installs ptxas 13.0")


def add() -> Launch:
    x = torch.zeros(512)
    return Launch(vector_add, (1,), {"x_ptr": x, "y_ptr": x, "out_ptr": x, "n": 512, "BLOCK": 512}, {})


def wgmma(columns: int, first: int = 0) -> str:
    """Returns a product whose accumulator starts at register `first`."""
    registers = ", ".join(f"%f{first + index}" for index in range(columns // 2))
    return f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{registers}}}, %rd2, %rd2, 1, 1, 1, 0, 0;\n"


def kernel(body: str, registers: int) -> str:
    """Returns a kernel that loads an accumulator, computes and stores it; `body` stands at line 9 of mine.py."""
    accumulator = range(registers)
    load = "".join(f"ld.global.f32 %f{index}, [%rd1+{512 * index}];\n" for index in accumulator)
    store = "".join(f"st.global.f32 [%rd1+{512 * index}], %f{index};\n" for index in accumulator)
    return f"""
.version 8.6
.target sm_90a
.address_size 64
\t.file\t1 "mine.py"
.visible .entry kernel(.param .u64 buffer, .param .u64 descriptor) .reqntid 128 {{
.reg .f32 %f<{registers}>;
.reg .b64 %rd<4>;
.reg .b32 %r<2>;
\t.loc\t1 7 1
ld.param.b64 %rd1, [buffer];
ld.param.b64 %rd2, [descriptor];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd1, %rd1, %rd3;
{load}
\t.loc\t1 9 5
{body}
\t.loc\t1 11 1
{store}
ret;
}}
"""


FENCE, COMMIT, WAIT = (
    f"wgmma.{word};\n" for word in ("fence.sync.aligned", "commit_group.sync.aligned", "wait_group.sync.aligned 0")
)
GOOD = kernel(FENCE + wgmma(128) + COMMIT + WAIT, 64)
NO_FENCE = kernel(wgmma(128) + COMMIT + WAIT, 64)
NO_WAIT = kernel(FENCE + wgmma(128) + COMMIT, 64)
TOO_MANY = kernel(FENCE + wgmma(256) + wgmma(256, 128) + COMMIT + WAIT, 256)


def lowered(**options: int) -> CudaContext:
    return CudaContext(Target.parse("cuda:sm_90a"), Options(**options), "kernel")


def refusal(ptx: str, **options: int) -> KernelpackError:
    with pytest.raises(KernelpackError) as raised:
        ptx_to_cubin.ptx_to_cubin(ptx, lowered(**options))
    return raised.value


def test_nvjitlink_gives_cubins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx_to_cubin, "find_ptxas", lambda: None)
    for target in ("cuda:sm_80", "cuda:sm_90a"):
        kernel = Product().launch().compile(target)
        assert kernel.image.startswith(ELF)
        assert kernel.metadata["assembler"].startswith("nvJitLink")
        assert kernel.metadata["registers"] > 32


def test_without_an_assembler_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx_to_cubin, "find_ptxas", lambda: None)
    monkeypatch.setattr(ptx_to_cubin, "nvjitlink_version", lambda: None)
    with pytest.raises(BuildError, match="no assembler") as raised:
        add().compile("cuda:sm_80")
    assert "pip install nvidia-cuda-nvcc" in str(raised.value)


def test_products_in_order_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = lowered()
    assert ptx_to_cubin.ptx_to_cubin(GOOD, facts).startswith(ELF)
    assert facts.figures["registers"] > 64
    assert facts.figures["spills"] == facts.figures["stack"] == 0


def test_a_missing_wait_fails_the_build_at_the_users_line() -> None:
    error = refusal(NO_WAIT, num_stages=2)
    assert isinstance(error, BuildError)
    assert str(error).startswith("mine.py:11:1: kernel: a wait for wgmma was inserted. ptxas ")
    assert "C7517" in str(error)
    assert "num_stages=1 (now 2)" in str(error)


def test_the_users_line_is_shown_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("\n" * 10 + "    total = tl.dot(a, b)\n")
    facts = lowered()
    facts.sources["mine.py"] = str(tmp_path / "mine.py")
    with pytest.raises(BuildError) as raised:
        ptx_to_cubin.ptx_to_cubin(NO_WAIT, facts)
    assert f"{tmp_path}/mine.py:11:1: kernel: a wait" in str(raised.value)
    assert "total = tl.dot(a, b)" in str(raised.value)


def test_compiling_tells_where_the_sources_lie() -> None:
    _, _, facts = lower(add())
    assert facts.sources == {"tests/frontend/kernels.py": vector_add.location.file}


def test_too_few_registers_fail_the_build_and_name_the_options() -> None:
    error = refusal(TOO_MANY, num_warps=4)
    assert isinstance(error, OutOfResources)  # as other blocks and num_warps may be fine
    assert "products of wgmma wait for each other, for want of registers" in str(error)
    assert "C7511" in str(error)
    assert "lower BLOCK_N or BLOCK_M, or raise num_warps (now 4)" in str(error)


@needs_old_ptxas
def test_a_missing_fence_is_found_by_the_second_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ptx_to_cubin.ptx_to_cubin(NO_FENCE, lowered()).startswith(ELF)  # newer ones are silent
    monkeypatch.setenv("KERNELPACK_CHECK_PTXAS", str(OLD_PTXAS))
    assert ptx_to_cubin.ptx_to_cubin(GOOD, lowered()).startswith(ELF)
    error = refusal(NO_FENCE)
    assert "a fence for wgmma was inserted. ptxas 13.0" in str(error)
    assert "C7519" in str(error)
    assert str(error).startswith("mine.py:9:5: ")


@needs_old_ptxas
def test_the_second_assembler_decides_nothing_about_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses. Another attempt might pass it with other code, which no cache key would tell apart."""
    monkeypatch.setenv("KERNELPACK_CHECK_PTXAS", str(OLD_PTXAS))
    context = lowered()
    with pytest.raises(BuildError) as refused:
        ptx_to_cubin.ptx_to_cubin(NO_FENCE, context)
    context.runs_on = True
    failed = Failed("cubin", refused.value, context)
    assert not CUDABackend().may_help(Attempt(3, waits_at_once=True), failed)
    context.is_checked = False
    assert CUDABackend().may_help(Attempt(3, waits_at_once=True), failed)


def test_a_program_that_is_no_assembler_is_blamed_on_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CHECK_PTXAS", "/bin/true")
    assert "to fix: set KERNELPACK_CHECK_PTXAS to NVIDIA's ptxas" in str(refusal(GOOD))


def test_libdevice_is_part_of_cache_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    before = CUDABackend().cache_key()
    monkeypatch.setattr("kernelpack.backends.cuda.backend.libdevice_digest", lambda: "another")
    assert CUDABackend().cache_key() != before


def test_the_second_assembler_is_given_what_it_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages are about products of wgmma and setmaxnreg; /bin/true assembles nothing."""
    monkeypatch.setenv("KERNELPACK_CHECK_PTXAS", "/bin/true")
    assert ptx_to_cubin.ptx_to_cubin(kernel("", 8), lowered()).startswith(ELF)
    assert "to fix: set KERNELPACK_CHECK_PTXAS to NVIDIA's ptxas" in str(refusal(kernel(FENCE, 8)))


def test_a_second_assembler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CHECK_PTXAS", "/nowhere/ptxas")
    assert "KERNELPACK_CHECK_PTXAS=/nowhere/ptxas: there is no such file" in str(refusal(GOOD))


PRODUCTS = [case.name for case in cases() if case.small and case.name.startswith(("matmul", "attention"))]


@needs_old_ptxas
@pytest.mark.parametrize(
    "name",
    [name if number % 3 == 0 else pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(PRODUCTS)],
)
def test_products_compile_without_messages_of_the_old_assembler(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CHECK_PTXAS", str(OLD_PTXAS))
    case = next(case for case in cases() if case.name == name)
    assert case.launch().compile("cuda:sm_90a").image.startswith(ELF)


@pytest.mark.parametrize(
    "message",
    [
        "(C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility across compilation units.",
        "(C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources",
        "(C7517) wgmma.wait_group is injected in around line 79 by compiler",
        "(C7519) warpgroup.arrive is injected in around line 76 by compiler",
        "(C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ill formed pipeline stage",
    ],
)
def test_messages_that_mean_other_code_fail_the_build(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ptx_to_cubin.Assembled(ELF, f"ptxas info    : Used 90 registers\nptxas info    : {message}", "ptxas 1.2")
    monkeypatch.setattr(ptx_to_cubin, "assemble", lambda ptx, arch, started: said)
    error = refusal("wgmma.commit_group.sync.aligned;\n")
    assert f"ptxas 1.2 reports ptxas info    : {message}" in str(error)
    assert error.cure


SERIALISED = "(C7513) Potential Performance Loss: wgmma.mma_async instructions are serialized"


@pytest.fixture
def serialising(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The assembler reports products of warpgroups that are in flight while other instructions run. Returns what it is given."""
    assemble, given = ptx_to_cubin.assemble, []

    def reporting(ptx: str, arch: str, started: Ptxas) -> Assembled:
        given.append(ptx)
        made = assemble(ptx, arch, started)
        return replace(made, log=f"{made.log}\n{SERIALISED}") if "wait_group.sync.aligned 1" in ptx else made

    monkeypatch.setattr(ptx_to_cubin, "assemble", reporting)
    return given


def attention() -> Launch:
    return next(case for case in cases() if case.name == "attention-bfloat16-2x100x90x32-64x32-full-4-2").launch()


def test_products_that_would_be_serialised_are_waited_for_at_once(serialising: list[str]) -> None:
    """ptxas serialises four products a pass that fill the registers, as of the backward pass of attention."""
    kernel = attention().compile("cuda:sm_90a")
    assert len(serialising) == 2
    assert "ttng.warp_group_dot " in kernel.stages["ttgir"]
    assert "isAsync = true" not in kernel.stages["ttgir"]
    assert "warp_group_dot_wait" not in kernel.stages["ttgir"]
    assert kernel.metadata["waits_at_once"]


def test_products_that_are_waited_for_at_once_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUDABackend, "attempts", lambda *_: [Attempt(3, waits_at_once=True)])
    launch = attention()
    special, values = launch.specialize()
    program = compile_program(launch.fn, special, Target.parse("cuda:sm_90a"), launch.options)
    run_every_schedule(program, launch.grid, values)
    launch.check(launch.arguments)


def test_products_that_the_author_leaves_in_flight_stay_so(serialising: list[str]) -> None:
    launch = Launch(two_in_flight, (1,), {"x": torch.zeros(64, 64, dtype=torch.bfloat16), "out": torch.zeros(64, 64)}, {})
    with pytest.raises(BuildError, match="products of wgmma wait for each other"):
        launch.compile("cuda:sm_90a")
    assert len(serialising) == 1


@kp.jit
def two_in_flight(x, out):
    lines, columns = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    tile = hopper.local_alloc([64, 64], tl.bfloat16)
    hopper.local_store(tile, tl.load(x + 64 * lines + columns))
    hopper.fence_async_shared()
    tl.debug_barrier()
    first = hopper.async_dot(tile, tile, tl.zeros([64, 64], tl.float32))
    second = hopper.async_dot(tile, tile.T, tl.zeros([64, 64], tl.float32))
    first = hopper.wait_dots(1, first)
    second = hopper.wait_dots(0, second)
    tl.store(out + 64 * lines + columns, first + second)


SETMAXNREG = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel() .maxntid 384 .minnctapersm 1 {
  setmaxnreg.inc.sync.aligned.u32 232;
  ret;
}
"""


def test_nvjitlink_drops_setmaxnreg_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = CudaContext(Target.parse("cuda:sm_90a"), Options(), "kernel")
    assert ptx_to_cubin.ptx_to_cubin(SETMAXNREG, lowered).startswith(ELF)
    monkeypatch.setattr(ptx_to_cubin, "find_ptxas", lambda: None)
    with pytest.raises(BuildError, match=r"setmaxnreg was ignored. nvJitLink .* reports .*C7504") as raised:
        ptx_to_cubin.ptx_to_cubin(SETMAXNREG, lowered)
    assert "pip install nvidia-cuda-nvcc" in str(raised.value)


def test_messages_of_the_assembler_show_the_line() -> None:
    with pytest.raises(BuildError, match="6:   nonsense;"):
        ptx_to_cubin.assemble(SETMAXNREG.replace("setmaxnreg.inc.sync.aligned.u32 232", "nonsense"), "sm_90a")


@pytest.mark.parametrize(
    ("registers", "spills", "again", "taken"),
    [(32, 16000, (255, 5000), True), (64, 2000, (128, 2400), False), (128, 600, None, False), (64, 0, None, False)],
    ids=["spills less with all registers", "spills more", "has all registers", "spills nothing"],
)
def test_what_must_spill_may_have_all_registers(
    monkeypatch: pytest.MonkeyPatch, registers: int, spills: int, again: tuple[int, int] | None, taken: bool
) -> None:
    """ptxas gives layer_norm_backward of same_source, BLOCK 16384, 4 warps, 32 registers and 16 KB of spills by itself."""

    def assembled(registers: int, spills: int) -> Assembled:
        return Assembled(b"", f"{spills} bytes spill stores, 0 bytes spill loads\nUsed {registers} registers", "ptxas")

    asked = []

    def assemble(ptx: str, arch: str) -> Assembled:
        asked.append(ptx)
        assert again is not None
        return assembled(*again)

    monkeypatch.setattr(ptx_to_cubin, "assemble", assemble)
    lowered = CudaContext(Target.parse("cuda:sm_90a"), Options(), "kernel", figures={"threads": 128 if registers < 64 else 512})
    first = assembled(registers, spills)
    chosen = ptx_to_cubin._with_room(first, ".reqntid 512\n", lowered)
    assert asked == ([] if again is None else [".reqntid 512 .minnctapersm 1\n"])
    assert (chosen is not first) == taken
