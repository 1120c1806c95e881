"""Names that host code written for Triton imports: where they are, and that they do what it expects."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernelpack.triton as triton
import kernelpack.triton.language as tl
from kernelpack.errors import BuildError, RefusedNameError
from kernelpack.triton.backends.compiler import GPUTarget
from kernelpack.triton.compiler import ASTSource
from kernelpack.triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from kernelpack.triton.runtime.errors import OutOfResources
from kernelpack.triton.runtime.jit import JITFunction, MockTensor
from kernelpack.triton.testing import Benchmark, assert_close, perf_report


@triton.jit
def scale(x, out, n, factors, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factors[0] + factors[1], mask=at < n)


def test_versions_compare() -> None:
    assert re.fullmatch(r"[3-9]\.\d+\.\d+", triton.__version__)


def test_compile_for_any_target() -> None:
    signature = {"x": "*fp16", "out": "*fp32", "n": "i32", "factors": ("fp32", "constexpr"), "BLOCK": "constexpr"}
    source = ASTSource(scale, signature, {"BLOCK": 64, (3, 1): 2.0}, {(0,): [["tt.divisibility", 16]]})
    for target, stage in ((GPUTarget("cuda", 90, 32), "ptx"), (GPUTarget("cpu", "x86-64-v3"), "object")):
        compiled = triton.compile(source, target=target, options={"num_warps": 2})
        assert stage in compiled.asm
        assert compiled.metadata.num_warps == 2
        assert compiled.metadata.target.backend == target.backend
        assert "tt.divisibility = 16" in compiled.asm["ttir"]
    with pytest.raises(CompilationError, match="argument n of scale is missing"):
        triton.compile(ASTSource(scale, {"x": "*fp16", "out": "*fp16"}))
    with pytest.raises(triton.TritonError, match="there is no option wraps"):
        triton.compile(source, options={"wraps": 1})
    with pytest.raises(triton.TritonError, match="scale has no argument y"):
        ASTSource(scale, {"y": "i32"})


def test_modules_of_the_runtime_need_no_import_of_their_own() -> None:
    names = ("runtime.autotuner.Autotuner", "runtime.errors.OutOfResources", "runtime.jit.JITFunction", "errors.TritonError")
    look = "import kernelpack.triton as triton; print(" + ", ".join(f"triton.{name}.__name__" for name in names) + ")"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Autotuner", "OutOfResources", "JITFunction", "KernelpackError"]


def test_modules_are_where_kernels_import_from() -> None:
    for module, name in (
        ("language.extra.libdevice", "tanh"),
        ("language.extra.cuda.libdevice", "tanh"),
        ("language.extra.cuda", "gdc_wait"),
        ("language.core", "_aggregate"),
        ("language.target_info", "cuda_capability_geq"),
        ("language.target_info", "is_hip_cdna4"),
        ("tools.tensor_descriptor", "TensorDescriptor"),
        ("runtime.autotuner", "Autotuner"),
        ("runtime.autotuner", "OutOfResources"),
        *(("runtime.autotuner", name) for name in ("JITFunction", "driver", "knobs", "get_cache_manager", "triton_key")),
        ("runtime.cache", "triton_key"),
        ("runtime.driver", "driver"),
        ("compiler.compiler", "ASTSource"),
        ("backends.driver", "DriverBase"),
        ("backends", "Backend"),
    ):
        assert hasattr(importlib.import_module(f"kernelpack.triton.{module}"), name), (module, name)

    @triton.jit
    def kernel(out):
        if tl.target_info.is_cuda() and tl.target_info.cuda_capability_geq(8):
            tl.store(out, 1)
        elif tl.target_info.is_cpu():
            tl.store(out, 2)

    out = torch.zeros(1, device=triton.runtime.driver.active.get_active_torch_device())
    kernel[(1,)](out)
    assert out.item() == (1 if out.is_cuda else 2)


def test_the_driver_speaks_of_this_machine() -> None:
    active = triton.runtime.driver.active
    assert active.get_active_torch_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert active.get_current_target().backend == active.device_type
    assert active.utils.get_device_properties(0)["multiprocessor_count"] > 0
    assert MockTensor(torch.float32).device == active.get_active_torch_device()


def test_one_backend_is_active_that_of_the_default_device() -> None:
    active = [name for name, backend in triton.backends.backends.items() if backend.driver.is_active()]
    assert active == ["nvidia" if torch.cuda.is_available() else "cpu"]
    assert isinstance(triton.runtime.driver.default, triton.backends.backends[active[0]].driver)


def test_kernels_answer_what_is_read_of_them() -> None:
    assert isinstance(scale, JITFunction)
    assert scale.__globals__ is globals()
    assert scale.constexprs == [4]
    assert scale.raw_src[0] == "@triton.jit\n"
    assert scale.rewrite().rewriter.def_file_lineno == scale.starting_line_number
    tuned = triton.autotune([triton.Config({"BLOCK": 8})], key=[])(triton.heuristics({})(scale))
    assert tuned.base_fn is scale


def test_errors_have_the_places_and_reasons_of_triton() -> None:
    @triton.jit
    def kernel():
        tl.static_assert(tl.float32 == tl.float16, "no")

    with pytest.raises(CompileTimeAssertionFailure) as caught:
        triton.compile(ASTSource(kernel, {}))
    assert caught.value.__cause__ is None
    assert issubclass(OutOfResources, triton.TritonError)

    @triton.jit
    def wrong():
        tl.program_id(20)

    with pytest.raises(triton.CompilationError) as problem:
        wrong[(1,)]()
    assert str(problem.value.__cause__) == problem.value.error_message == "program_id axis must be 0, 1, or 2 but got 20"


def test_assert_close() -> None:
    assert_close(torch.tensor([1.0, float("nan")]), [1.005, float("nan")])
    with pytest.raises(AssertionError, match=r"sum 1 of 2 elements are not close \(atol=0.01, rtol=0.0\); .* 0.5"):
        assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), err_msg="sum")


def test_perf_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Benchmark(["m", "n"], [1, (2, 3)], "provider", ["a", "b"], ["A", "B"], "sizes", {"extra": 10}, ylabel="GB/s")

    @perf_report([bench])
    def run(m, n, provider, extra):
        return (m * 100 + n * extra + (0.5 if provider == "b" else 0), 0.0, 1.0)

    run.run(print_data=True, save_path=str(tmp_path), diff_col=True)
    assert (tmp_path / "sizes.csv").read_text().splitlines() == [
        "m,n,A,B,Diff",
        "1,1,110,110.500000,0.500000",
        "2,3,230,230.500000,0.500000",
    ]
    assert "sizes.png" in (tmp_path / "results.html").read_text()
    assert capsys.readouterr().out.splitlines()[0] == "sizes:"


@pytest.mark.parametrize("tool", ["compile", "link"])
def test_ahead_of_time_tools_are_refused_with_what_to_use(tool: str) -> None:
    module = importlib.import_module(f"kernelpack.triton.tools.{tool}")
    with pytest.raises(RefusedNameError, match=rf"triton\.tools\.{tool}.*\n.*kernelpack build"):
        _ = module.compile_kernel
    assert not hasattr(module, "__path__")
    done = subprocess.run(
        [sys.executable, "-m", f"kernelpack.triton.tools.{tool}", "k.py"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "to fix: write the kernel's launch as a @kernelpack.op" in done.stderr


def test_errors_of_a_gpus_code_name_the_users_line() -> None:
    @triton.jit
    def sorting(x):
        places = tl.arange(0, 512)[:, None] * 512 + tl.arange(0, 512)
        tl.store(x + places, tl.sort(tl.load(x + places)))

    @triton.jit
    def assembly(x):
        word = tl.inline_asm_elementwise("bogus.u32 $0, $1;", "=r,r", [tl.arange(0, 8)], dtype=tl.int32, is_pure=True, pack=1)
        tl.store(x + tl.arange(0, 8), word)

    for kernel, error, line in ((sorting, OutOfResources, 2), (assembly, BuildError, 1)):
        with pytest.raises(error) as caught:
            triton.compile(ASTSource(kernel, {"x": "*fp32"}, {}), target="cuda:sm_80")
        place = caught.value.location
        assert place is not None
        assert Path(place.file).name == Path(__file__).name
        assert place.line == kernel.starting_line_number + line
