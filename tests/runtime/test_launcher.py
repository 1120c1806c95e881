"""kernel[grid](...) on the CPU: what is launched, what is compiled once, what is refused."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.backend import CPUBackend
from kernelpack.errors import CompilationError, LaunchError, TargetError, UnsupportedError
from kernelpack.language import hopper
from kernelpack.runtime import launch_hooks, launcher
from kernelpack.target import Target
from tests.frontend.compiling import define

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built"),
    pytest.mark.usefixtures("compilations"),
]


SOURCE = """
@kp.jit
def scale(x, out, n, factor=2.0, *, BLOCK: tl.constexpr = 64):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)
"""


def scale() -> Any:
    """Returns a kernel that nobody has launched."""
    return define(SOURCE)["scale"]


def test_options_for_other_compilers_change_nothing(compilations: list[Any]) -> None:
    x, kernel = torch.randn(64), scale()
    other = {"waves_per_eu": 2, "matrix_instr_nonkdim": 16}
    for more in ({}, other, {"extern_libs": {"libdevice": "/no/such/file.bc"}}):
        out = torch.zeros(64)
        kernel[(1,)](x, out, 64, **more)
        assert torch.equal(out, x * 2)
    assert len(compilations) == 1
    with pytest.raises(LaunchError, match="there is no parameter or option sanitize"):
        kernel[(1,)](x, out, 64, sanitize=True)


def test_arch_chooses_what_a_launch_is_compiled_for() -> None:
    x, out, kernel = torch.randn(64), torch.zeros(64), scale()
    native = kernel[(1,)](x, out, 64).kernel.target
    for arch, target in (("x86-64-v3", Target("cpu", "x86-64-v3")), (None, native), ("native", native)):
        out.zero_()
        assert kernel[(1,)](x, out, 64, arch=arch).kernel.target == target
        assert torch.equal(out, x * 2)
    with pytest.raises(TargetError, match="cpu:sm80 is not a CPU target"):
        kernel[(1,)](x, out, 64, arch="sm80")


@pytest.mark.parametrize(("arch", "target"), [("sm80", "sm_80"), ("sm90", "sm_90a"), ("sm_90", "sm_90")])
def test_launches_on_gpus_take_the_arch_that_they_or_the_environment_state(
    monkeypatch: pytest.MonkeyPatch, arch: str, target: str
) -> None:
    x, compiled = SimpleNamespace(device=torch.device("cuda", 0), dtype=torch.float32, data_ptr=lambda: 16), []
    monkeypatch.setattr(launcher, "compiled_or_kept", lambda source, target, options, bindings: compiled.append(target))
    monkeypatch.setattr(launch_hooks, "load", lambda kernel, backend, source: SimpleNamespace(kernel=kernel))
    scale().warmup(x, x, 64, arch=arch, grid=(1,))
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", arch)
    scale().warmup(x, x, 64, grid=(1,))
    assert compiled == [Target("cuda", target)] * 2


def test_what_was_launched_launches_again_and_says_what_host_code_divides_by() -> None:
    x, out, kernel = torch.randn(64), torch.zeros(64), scale()
    loaded = kernel.warmup(x, out, 64, factor=3.0, BLOCK=64, grid=(1,))
    assert not out.any()
    loaded[(1, 1, 1)](x, out, 64, 3.0, 64)  # everything that the function has
    assert torch.equal(out, x * 3)
    loaded[(1,)](x, out, 32, -1.0)  # what is not known at compile time
    assert torch.equal(out, torch.cat([-x[:32], x[32:] * 3]))
    assert loaded.n_regs > 0
    assert loaded.metadata.shared > 0


def test_arguments_by_position_by_name_and_by_default() -> None:
    x, kernel = torch.randn(200), scale()
    for launch in (
        lambda out: kernel[(4,)](x, out, 200),
        lambda out: kernel[(2,)](x, out=out, n=200, factor=2.0, BLOCK=128),
        lambda out: kernel[(2,)](x, out, 200, BLOCK=tl.constexpr(128), num_warps=8, num_stages=2),
        lambda out: kernel[lambda meta: (kp.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 200, BLOCK=32),
        lambda out: kernel[4, 1](x, out, 200),
        lambda out: kernel[4, 1, 1, 1](x, out, 200),  # what is after the third is not looked at, as in Triton
        lambda out: kernel[lambda meta: [4, 1, 1, "no extent", -1]](x, out, 200),
    ):
        out = torch.full((256,), 7.0)
        launch(out)
        torch.testing.assert_close(out[:200], 2 * x, rtol=0, atol=0)
        assert (out[200:] == 7).all()


def test_a_grid_function_sees_options(compilations: list[Any]) -> None:
    seen: list[dict[str, Any]] = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.append(meta)
        return (1,)

    x = torch.randn(64)
    scale()[grid](x, x.clone(), 64, num_warps=8)
    assert seen[0]["num_warps"] == 8
    assert seen[0]["BLOCK"] == 64
    assert seen[0]["factor"] == 2.0


def test_calls_of_one_kind_are_compiled_once(compilations: list[Any]) -> None:
    x, kernel = torch.randn(300), scale()
    for n in (200, 300, 16, 17):
        kernel[(5,)](x, torch.empty(300), n)
    assert len(compilations) == 1, "the CPU backend assumes nothing about integers but the value 1"
    kernel[(5,)](x, torch.empty(300), 1)
    kernel[(5,)](x, torch.empty(300), True)
    kernel[(5,)](x, torch.empty(300), 5, BLOCK=32)
    assert [dict(special.signature).get("n") for special in compilations] == ["i32", None, "i1", "i32"]
    kernel[(5,)](x.half(), torch.empty(300), 200)
    assert len(compilations) == 5


def test_warmup_compiles_and_does_not_launch(compilations: list[Any]) -> None:
    x, out, kernel = torch.randn(64), torch.zeros(64), scale()
    compiled = kernel.warmup(x, out, 64, grid=(1,))
    assert (out == 0).all()
    assert {"ttir", "llir", "object"} <= set(compiled.asm)
    assert "ret" in compiled.asm["asm"]  # made when it is asked for
    kernel[(1,)](x, out, 64)
    assert len(compilations) == 1
    torch.testing.assert_close(out, 2 * x, rtol=0, atol=0)


def test_another_process_finds_what_was_compiled(compilations: list[Any]) -> None:
    x, out = torch.randn(64), torch.zeros(64)
    first = scale()[(1,)](x, out, 64)
    again = scale()[(1,)](x, out.zero_(), 64)  # another function of the same text: nothing of the first is in memory
    assert len(compilations) == 1
    assert again.asm == first.asm
    torch.testing.assert_close(out, 2 * x, rtol=0, atol=0)


def test_options_that_mean_nothing_on_a_cpu_compile_nothing_anew(compilations: list[Any]) -> None:
    """Tuning tries dozens of configs that differ in warps and stages alone."""
    x, kernel = torch.randn(64), scale()
    for warps, stages in ((4, 3), (8, 3), (4, 2)):
        out = torch.zeros(64)
        launched = kernel[(1,)](x, out, 64, num_warps=warps, num_stages=stages)
        assert torch.equal(out, x * 2)
        assert (launched.metadata.num_warps, launched.metadata.num_stages) == (warps, stages)
    assert len(compilations) == 1
    kernel[(1,)](x, out, 64, debug=True)
    assert len(compilations) == 2


def test_a_cache_file_that_is_torn_or_altered_is_no_obstacle(compilations: list[Any], tmp_path: Path) -> None:
    x, out = torch.randn(64), torch.zeros(64)
    image = scale()[(1,)](x, out, 64).kernel.image
    (kept,) = tmp_path.rglob("kernel.bin")
    whole = kept.read_bytes()
    code = whole.index(image)
    emptied = whole[:code] + bytes(len(image)) + whole[code + len(image) :]  # its length and all around it are right
    for number, broken in enumerate((b"", whole[:100], emptied), 2):
        kept.write_bytes(broken)
        scale()[(1,)](x, out.zero_(), 64)
        assert len(compilations) == number
        torch.testing.assert_close(out, 2 * x, rtol=0, atol=0)
    scale()[(1,)](x, out, 64)
    assert len(compilations) == number, "what was compiled last is kept"


def test_what_other_tools_compiled_is_compiled_anew(compilations: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = torch.randn(64), torch.zeros(64)
    for version, count in (("1.0", 1), ("1.0", 1), ("1.1", 2)):
        monkeypatch.setattr(CPUBackend, "tool_versions", lambda _, version=version: {"llvm": version})
        scale()[(1,)](x, out, 64)
        assert len(compilations) == count


def test_constants_that_are_equal_but_differ_are_other_constants(compilations: list[Any]) -> None:
    kernel = define(
        """
        @kp.jit
        def kernel(out, VALUE: tl.constexpr):
            first: tl.constexpr = VALUE[0] if isinstance(VALUE, tuple) else VALUE
            tl.store(out, 1.0 if isinstance(first, bool) else 2.0 if isinstance(first, int) else tl.full((), first, tl.float32) + 3.0)
            tl.store(out + 1, tl.full((), first, tl.float32))
        """
    )["kernel"]
    out = torch.zeros(2)
    for wrap in (lambda value: value, lambda value: (value,), tl.constexpr, lambda value: (value, (value, None))):
        for value, kind in ((1, 2.0), (1.0, 4.0), (True, 1.0), (0.0, 3.0), (-0.0, 3.0)):
            kernel[(1,)](out, wrap(value))
            assert (out[0].item(), str(out[1].item())) == (kind, str(float(value))), wrap(value)
    assert len(compilations) == 15
    for _ in range(2):
        kernel[(1,)](out, (float("nan"),))
        assert out[1].isnan()
    assert len(compilations) == 16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, x: k[(1,)](x, x), "scale: n is missing"),
        (lambda k, x: k[(1,)](x, x, 1, 2.0, 3, 4), "6 positional arguments were given"),
        (lambda k, x: k[(1,)](x, x, 1, n=1), "n was given twice"),
        (lambda k, x: k[(1,)](x, x, 1, WARPS=4), "there is no parameter or option WARPS"),
        (lambda k, x: k[(1,)](x, x, 4, num_warps=3), "scale: num_warps must be a power of 2, it is 3"),
        (lambda k, x: k[(1,)](x, x, 4, num_warps="4"), "scale: num_warps is a number from 1 on, it is '4'"),
        (lambda k, x: k[(1,)](x, x, 4, num_stages=-1), "scale: num_stages is a number from 0 on, it is -1"),
        (lambda k, x: k[(1,)](x, x, object()), "argument n of scale is a object"),
        (lambda k, x: k[(1,)](x, x, np.int32(3)), "argument n of scale is a numpy.int32"),
        (lambda k, x: k[(1,)](x, x, np.bool_(True)), "argument n of scale is a numpy.bool"),
        (lambda k, x: k[(1.0,)](x, x, 4), r"the grid is \(1.0,\)"),
        (lambda k, x: k[(1,)](x, x, 1 << 64), "which no integer type holds"),
        (lambda k, x: k[(1,)](x, x, -(1 << 63) - 1), "which no integer type holds"),
        (lambda k, x: k[(1,)](x, x, 4, BLOCK={64: 1}), "a compile-time argument cannot be told from others"),
        (lambda k, x: k[()](x, x, 4), r"the grid is \(\).*\n  to fix: give 1 to 3 integers"),
        (lambda k, x: k[(1, -1)](x, x, 4), r"the grid is \(1, -1\)"),
        (lambda k, x: k[(1, 65536)](x, x, 4), "grid axis y is 65536"),
        (lambda k, x: k[(1,)](x.to(torch.complex64), x, 4), "has dtype complex64"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        call(scale(), torch.zeros(4))


def test_later_calls_do_not_come_to_python(compilations: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x, out, kernel = torch.randn(64), torch.zeros(64), scale()
    kernel[(1,)](x, out, 64)
    kernel[(1,)](x, out, 64, num_warps=8)
    asked: list[str] = []
    for method in ("launch", "prepare"):
        monkeypatch.setattr(launcher.Launcher, method, lambda *_, method=method: asked.append(method))
    for factor in (3.0, 4.0):
        kernel[lambda meta: (meta["n"] // meta["BLOCK"],)](x, out=out, n=64, factor=factor)
        torch.testing.assert_close(out, factor * x, rtol=0, atol=0)
    kernel[1](x, out, 48, num_warps=8)
    kernel[(1,)](torch.nn.Parameter(x), out, 32)  # which requires a gradient
    assert asked == []


def test_constants_are_told_apart_by_value_not_by_object(compilations: list[Any]) -> None:
    kernel = define(
        """
        @kp.jit
        def kernel(out, VALUE: tl.constexpr, TYPE: tl.constexpr):
            tl.store(out, tl.full([], VALUE[1], TYPE).to(tl.float32))
        """
    )["kernel"]
    out = torch.zeros(1)
    for value in (2, 3, 2, 3):
        kernel[(1,)](out, (1, value), tl.int64)
        assert out.item() == value
    assert len(compilations) == 2
    kernel[(1,)](out, (1, 2), tl.int32)
    assert len(compilations) == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_number_has_the_type_of_its_annotation(dtype: str) -> None:
    text = f"@kp.jit\ndef kernel(out, value: tl.{dtype}):\n    tl.static_assert(value.dtype == tl.{dtype})\n    tl.store(out, value)\n"
    out = torch.zeros(1, dtype=torch.float64)
    for value in (0.1, -3, float("inf")):
        define(text)["kernel"][(1,)](out, value)
        assert out.item() == torch.tensor(value, dtype=getattr(torch, dtype)).double().item()


@pytest.mark.parametrize(
    ("annotation", "dtype"),
    [
        ("float", "float32"),
        ("'double'", "float64"),
        ("'half'", "float16"),
        ("int", "int32"),
        ("bool", "int1"),
        ("'tl.uint1'", "int1"),
    ],
)
def test_a_number_has_the_type_that_python_or_c_calls_so(annotation: str, dtype: str) -> None:
    """It was ignored: 1 became a constant, and what was meant as a float an integer."""
    text = f"@kp.jit\ndef kernel(out, value: {annotation}):\n    tl.static_assert(value.dtype == tl.{dtype})\n    tl.store(out, value)\n"
    kernel, out = define(text)["kernel"], torch.zeros(1)
    for value in (1, 0, True):
        kernel[(1,)](out, value)
        assert out.item() == value


def test_a_number_that_its_type_does_not_hold_is_refused() -> None:
    kernel = define(
        """
        @kp.jit
        def kernel(out, value: tl.int16, number):
            tl.store(out, value + number)
        """
    )["kernel"]
    out = torch.zeros(1)
    kernel[(1,)](out, -3, 0.5)
    assert out.item() == -2.5
    with pytest.raises(LaunchError, match="value of kernel is 70000, its annotation says i16"):
        kernel[(1,)](out, 70000, 1.0)
    with pytest.raises(LaunchError, match="expects an integer"):
        kernel[(1,)](out, 2.5, 1.0)


def test_two_processes_compile_one_kernel_at_once(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(
        "import sys, time, torch\nimport kernelpack as kp, kernelpack.language as tl\n"
        + SOURCE
        + "x = torch.arange(64.0)\nout = torch.zeros(64)\n"
        + "while time.time() < float(sys.argv[1]): pass\n"
        + "scale[(1,)](x, out, 64)\nassert torch.equal(out, 2 * x)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "KERNELPACK_LOAD_LIBRARY": "0"}
    command = [sys.executable, str(tmp_path / "once.py"), str(time.time() + 3)]
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        assert process.wait(120) == 0, process.stderr.read() if process.stderr else ""
    assert len(list(tmp_path.rglob("kernel.bin"))) == 1
    assert not list(tmp_path.rglob(".kernelpack-*"))


def test_tensors_on_another_device_are_refused() -> None:
    """A kernel on the CPU was given the address of a tensor that has none, and crashed."""

    @kp.jit
    def copy(x, out):
        tl.store(out, tl.load(x))

    elsewhere, out = torch.empty(1, device="meta"), torch.zeros(1)
    with pytest.raises(LaunchError, match=r"copy: no backend runs on meta tensors"):
        copy[(1,)](elsewhere, out)
    with pytest.raises(LaunchError, match=r"copy: no backend runs on meta tensors"):
        copy[(1,)](out, elsewhere)


def test_integers_that_an_annotation_does_not_hold_are_refused() -> None:
    @kp.jit
    def store(out, n: tl.int64, m: tl.int32, k: tl.uint64):
        tl.store(out, n + m + k.to(tl.int64, bitcast=True))

    out = torch.zeros(1, dtype=torch.int64)
    store[(1,)](out, 2**63 - 1, 0, -1)
    assert out.item() == 2**63 - 2
    for arguments, name in (((2**63, 0, 0), "n"), ((0, 2**31, 0), "m"), ((0, 0, 2**64), "k")):
        with pytest.raises(LaunchError, match=rf"argument {name} of store is \d+, its annotation says [iu]\d+"):
            store[(1,)](out, *arguments)
    store[(np.int64(1), torch.tensor(1))](out, 0, 3, 4)  # extents are what stands for an integer
    assert out.item() == 7


def test_a_pointer_with_a_dtype_stands_for_a_tensor() -> None:
    """As in Triton, whatever has `data_ptr` and `dtype` is one; that it has no `device` was an AttributeError."""

    class TypedPointer:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.dtype = tensor.dtype
            self.data_ptr = tensor.data_ptr

    @kp.jit
    def copy(x, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at))

    x, out = torch.arange(16, dtype=torch.int16), torch.zeros(16, dtype=torch.int16)
    copy[(1,)](TypedPointer(x), out, BLOCK=16)
    assert torch.equal(x, out)
    copy[(1,)](TypedPointer(x + 1), TypedPointer(out), BLOCK=16)
    assert torch.equal(x + 1, out)


def test_tensors_without_memory_are_refused() -> None:
    @kp.jit
    def copy(x, out):
        tl.store(out, tl.load(x))

    freed, out = torch.ones(3), torch.zeros(1)
    copy[(1,)](freed, out)
    freed.untyped_storage().resize_(0)
    with pytest.raises(LaunchError, match=r"copy: x has 3 elements and no memory"):
        copy[(1,)](freed, out)
    assert copy[(0,)](torch.empty(0), out) is not None


def test_tensors_that_a_gpu_cannot_reach_are_refused() -> None:
    class OnDevice(torch.Tensor):
        device = torch.device("cuda", 0)

    class Pinned(torch.Tensor):
        def is_pinned(self, *args: Any) -> bool:
            return True

    gpu, host = torch.zeros(1).as_subclass(OnDevice), torch.zeros(1)
    launch_hooks.check_reachable("kernel", zip("abcd", [3, gpu, (host.as_subclass(Pinned), gpu), None], strict=True), "cuda")
    with pytest.raises(ValueError, match=r"kernel: b is on cpu, the kernel runs on cuda") as problem:
        launch_hooks.check_reachable("kernel", [("a", gpu), ("b", (1, host))], "cuda")
    assert isinstance(problem.value, LaunchError)


def test_kernels_have_named_parameters_and_a_file() -> None:
    @kp.jit
    def gather(*tensors):
        tl.store(tensors[0], 1.0)

    with pytest.raises(LaunchError, match=r"gather: a kernel cannot take \*tensors, its parameters have names"):
        gather[(1,)](torch.zeros(1))
    names: dict[str, Any] = {}
    exec("import kernelpack as kp\n@kp.jit\ndef f(x):\n    pass", names)
    with pytest.raises(CompilationError, match="the source of f cannot be read"):
        names["f"][(1,)](torch.zeros(1))
    with pytest.raises(LaunchError, match=r"compile takes an ASTSource, got 'kernel.ttir'"):
        kp.compile(*("kernel.ttir",))


def test_what_is_for_gpus_alone_says_so() -> None:
    @kp.jit
    def assembly(x):
        word = tl.inline_asm_elementwise("add.u32 $0, $1, 1;", "=r,r", [tl.arange(0, 8)], dtype=tl.int32, is_pure=True, pack=1)
        tl.store(x + tl.arange(0, 8), word)

    @kp.jit
    def barriers(x):
        hopper.mbarrier_alloc(1, 2)

    with pytest.raises(UnsupportedError, match="it is PTX, which GPUs alone execute"):
        assembly[(1,)](torch.zeros(8))
    with pytest.raises(UnsupportedError, match=r"kernelpack\.language\.hopper needs cuda:sm_90a"):
        barriers[(1,)](torch.zeros(8))
