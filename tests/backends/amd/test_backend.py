"""The AMD backend as people meet it: targets, what is refused and why, what is said of code that was never run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.installed import backend_for_device, backends
from kernelpack.cli import main
from kernelpack.errors import BuildError, LaunchError, OutOfResources, TargetError, UnsupportedError
from kernelpack.opgen.build import build
from kernelpack.options import Options
from kernelpack.runtime.launchers import with_launcher
from kernelpack.target import Target
from tests.backends.amd.kernels import ADD, GFX942, add, compiled

OPS = '''
"""An op with a config for any target."""
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@kp.op("add(Tensor x, Tensor y) -> Tensor", variants={"x": [tl.float32], "y": kp.same_as("x")}, configs={"": kp.Config({"BLOCK": 512})})
def add(x, y):
    out = kp.empty_like(x)
    n = x.numel()
    add_kernel[lambda meta: (kp.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "amd_ops.py"
    path.write_text(OPS)
    return path


def test_targets() -> None:
    backend = backends()["amdgpu"]
    assert backend.targets() == (GFX942,)
    for text in ("amdgpu:native", "amdgpu:gfx90a", "amdgpu:gfx942+xnack"):
        with pytest.raises(TargetError, match=r"to fix: .*amdgpu:gfx942"):
            backend.resolve_target(Target.parse(text))


def test_devices_of_torch_are_left_to_the_backend_that_launches() -> None:
    found = backend_for_device("cuda")
    assert found is not None
    assert found.name == "cuda"
    with pytest.raises(LaunchError, match="kernels for amdgpu are compiled, and nothing launches them"):
        with_launcher(backends()["amdgpu"])


# ---- what is refused ----


@kp.jit
def product(x, out):
    tile = tl.load(x + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :])
    tl.store(out, tl.sum(tl.dot(tile, tile)))


@kp.jit
def prints(x, out):
    tl.device_print("x", tl.load(x))


@kp.jit
def sine(x, out):
    tl.store(out, tl.sin(tl.load(x).to(tl.float32)))


@kp.jit
def exponential(x, out):
    tl.store(out, tl.exp(tl.load(x)))


@pytest.mark.parametrize(
    ("kernel", "kind", "said"),
    [
        (product, "fp16", "tt.dot cannot be compiled for amdgpu:gfx942: matrix products are not lowered yet"),
        (prints, "fp32", "tt.print cannot be compiled for amdgpu:gfx942: kernels have nobody to print to"),
        (
            sine,
            "fp32",
            "math.sin cannot be compiled for amdgpu:gfx942: LLVM's code for it is accurate for small arguments alone",
        ),
        (
            exponential,
            "fp64",
            "math.exp cannot be compiled for amdgpu:gfx942: it is lowered for floats of 16 and 32 bits alone",
        ),
    ],
)
def test_what_is_not_lowered_is_refused_before_at_its_line(kernel: Any, kind: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        compiled(kernel, {"x": f"*{kind}", "out": "*fp32" if kind != "fp64" else "*fp64"})
    assert said in str(refused.value)
    assert refused.value.location is not None
    assert refused.value.location.file == __file__


def test_options_that_the_hardware_does_not_have() -> None:
    with pytest.raises(
        OutOfResources, match="the kernel needs 2048 threads, a block has at most 1024\n  to fix: use num_warps=16 at most"
    ):
        compiled(add, ADD, {"BLOCK": 4096}, options=Options(num_warps=32))
    for options, said in (
        (Options(num_ctas=2), "no clusters"),
        (Options(threads_per_warp=32), "a warp of this GPU has 64 lanes"),
    ):
        with pytest.raises(UnsupportedError, match=said):
            compiled(add, ADD, {"BLOCK": 4096}, options=options)


def test_op_libraries_hold_nothing_that_nobody_launches(source: Path) -> None:
    with pytest.raises(BuildError, match="kernels for amdgpu:gfx942 are compiled, and nothing launches them"):
        build([source], namespace="amd_ops", targets=["amdgpu:gfx942"])


# ---- what is said ----


def test_inspect_shows_every_stage_and_says_that_nothing_was_run(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {
        "ttir": "tt.func public @",
        "ttgir": "#ttg.linear",
        "llir": "amdgpu_kernel",
        "amdgcn": ".amdhsa_kernel",
        "object": "",
    }
    for stage, part in shown.items():
        output = ["--json"] if stage == "object" else []
        assert main(["inspect", str(source), "--target", "amdgpu:gfx942", "--variant", "any", "--stage", stage, *output]) == 0
        printed = capsys.readouterr()
        assert part in printed.out
        assert printed.err.startswith("note: amdgpu:gfx942: only code is generated; it was never run on hardware")


@pytest.mark.parametrize("until", ["ttir", "ttgir", "llir", "amdgcn", "object"])
def test_nothing_is_made_after_the_stage_that_is_asked_for(until: str) -> None:
    stages = compiled(add, ADD, {"BLOCK": 256}, until=until).stages
    assert [*stages][-1] == until


def test_doctor_names_the_linker_and_says_that_nothing_was_run() -> None:
    done = subprocess.run([sys.executable, "-m", "kernelpack", "doctor"], capture_output=True, text=True, check=False)
    assert "amdgpu: gfx942" in done.stdout
    assert "amdgpu:gfx942: only code is generated; it was never run on hardware" in done.stdout
    (lld,) = (tool for tool in backends()["amdgpu"].tools() if tool.name == "lld")
    assert lld.found or "pip install ziglang" in done.stdout
    assert not lld.needed


def test_passes_run_over_text_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "add.ttir"
    file.write_text(str(compiled(add, ADD, {"BLOCK": 256}, until="ttgir").stages["ttir"]))
    assert main(["opt", str(file), "--target", "amdgpu:gfx942"]) == 0
    assert '"ttg.threads-per-warp" = 64' in capsys.readouterr().out
