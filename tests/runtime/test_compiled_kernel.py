"""What compile() and launches return has the launch interface of Triton's compiled kernels, which Inductor's launchers call."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
import kernelpack.triton as triton
from kernelpack.backends.cpu.facts.features import native_target
from kernelpack.errors import LaunchError, TargetError, UnreachableMemoryError
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.runtime.kernel_view import KernelView
from kernelpack.target import GPUTarget, Target

HERE = GPUTarget("cpu", "", 32)


@kp.jit(launch_metadata=lambda grid, metadata, args: {"name": "scaled", "grid": grid, "n": args["n"]})
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@kp.jit
def scale_pairs(pair, unused: tl.constexpr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(pair[0] + at) * pair[1])


SIGNATURE = {"x": "*fp32", "out": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}


def compiled(**changes: Any) -> KernelView:
    return kp.compile(ASTSource(scale, SIGNATURE | changes, {"BLOCK": 64}), HERE, {"num_warps": 2})


def run(kernel: KernelView, grid: tuple[int, int, int], *arguments: Any, enter: Any = None, leave: Any = None) -> None:
    """Launches as Inductor does."""
    kernel._init_handles()
    kernel.run(*grid, 0, kernel.function, kernel.packed_metadata, None, enter, leave, *arguments)


def test_an_empty_architecture_is_this_machines() -> None:
    assert compiled().metadata.target == GPUTarget.of(native_target())


def test_it_has_what_launchers_ask_of_it() -> None:
    kernel = compiled()
    assert (kernel.num_warps, kernel.num_ctas, kernel.cluster_dims) == (2, 1, (1, 1, 1))
    assert kernel.shared == kernel.metadata.shared
    assert kernel.n_spills == 0
    assert kernel.n_regs > 0
    assert kernel.function is not None
    assert kernel.src.fn is scale
    assert isinstance(kernel, triton.compiler.CompiledKernel)
    assert kernel.launch_metadata((1, 1, 1), 0) is None, "no hook asks for it"


def test_run_takes_all_arguments_of_the_function() -> None:
    x, out = torch.arange(100.0), torch.zeros(100)
    run(compiled(), (2, 1, 1), x, out, 100, 3.0, 64)
    assert torch.equal(out, 3 * x)
    run(compiled(), (0, 1, 1), x, out.zero_(), 100, 3.0, 64)
    assert out.count_nonzero() == 0
    with pytest.raises(
        LaunchError, match=r"scale: run was given 4 arguments\n  to fix: it takes all of x, out, n, factor, BLOCK"
    ):
        run(compiled(), (1, 1, 1), x, out, 100, 3.0)


def test_a_launched_kernel_has_it_too() -> None:
    x, out = torch.arange(100.0), torch.zeros(100)
    launched = scale[(2,)](x, out, 100, 3.0, 64)
    run(launched, (2, 1, 1), x, out.zero_(), 100, 2.0, 64)
    assert torch.equal(out, 2 * x)
    launched[(2, 1, 1)](x, out, 100, 4.0, 64)
    assert torch.equal(out, 4 * x)


def test_tuples_are_taken_apart() -> None:
    source = ASTSource(
        scale_pairs,
        {"pair": ("*fp32", "constexpr"), "unused": "constexpr", "out": "*fp32", "BLOCK": "constexpr"},
        {(0, 1): 3.0, "unused": "word", "BLOCK": 16},
    )
    x, out = torch.arange(16.0), torch.zeros(16)
    run(kp.compile(source, HERE), (1, 1, 1), (x, 3.0), "word", out, 16)
    assert torch.equal(out, 3 * x)


def test_memory_that_is_nowhere_is_refused() -> None:
    freed, out = torch.ones(64), torch.zeros(64)
    freed.untyped_storage().resize_(0)
    with pytest.raises(UnreachableMemoryError, match="scale: x has 64 elements and no memory"):
        run(compiled(), (1, 1, 1), freed, out, 64, 2.0, 64)


def test_hooks_are_called_around_the_launch(switches: Any) -> None:
    x, out, seen = torch.ones(64), torch.zeros(64), []
    kernel = compiled()
    enter, leave = lambda told: seen.append((told.get(), out.sum().item())), lambda told: seen.append(out.sum().item())
    run(kernel, (1, 1, 1), x, out, 64, 2.0, 64, enter=enter, leave=leave)
    assert seen[0][0].items() >= {"name": "scaled", "grid": (1, 1, 1), "n": 64}.items()
    assert (seen[0][1], seen[1]) == (0, 128)
    runtime = switches.runtime
    bound = kernel.run  # as launchers bind it, before somebody wants to see launches
    chains = runtime.launch_enter_hook, runtime.launch_exit_hook
    runtime.launch_enter_hook = enter
    bound(1, 1, 1, 0, kernel.function, None, None, *chains, x, out, 64, 3.0, 64)
    assert len(seen) == 3
    assert kernel.launch_metadata((1, 1, 1), 0, x, out, 64, 3.0, 64).get()["n"] == 64


def test_the_folder_of_the_cache_is_used(switches: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    hits: list[bool] = []
    with switches.compilation.scope():
        switches.compilation.listener = lambda *event: hits.append(event[4])
        first = compiled()
        second = compiled()
        compiled(factor="fp64")
    assert hits == [False, True, False]
    assert first.hash == second.hash
    x, out = torch.ones(64), torch.zeros(64)
    run(second, (1, 1, 1), x, out, 64, 2.0, 64)
    assert torch.equal(out, 2 * x)


def test_other_processes_load_what_they_get() -> None:
    x, out = torch.ones(64), torch.zeros(64)
    kernel = compiled()
    run(kernel, (1, 1, 1), x, out, 64, 2.0, 64)
    again = pickle.loads(pickle.dumps(kernel))
    run(again, (1, 1, 1), x, out, 64, 3.0, 64)
    assert torch.equal(out, 3 * x)
    assert again.asm["ttir"] == str(kernel.asm["ttir"])


def test_a_kernel_made_of_another_ones_attributes_is_the_same() -> None:
    """Inductor's compile workers send the attributes, without what belongs to the process."""
    x, out = torch.ones(64), torch.zeros(64)
    kernel = compiled()
    kernel._init_handles()
    attributes = {
        **vars(kernel),
        "metadata": kernel.metadata,
        "packed_metadata": None,
        "module": None,
        "function": None,
        "run": None,
    }
    made = triton.compiler.CompiledKernel.__new__(triton.compiler.CompiledKernel)
    vars(made).update(pickle.loads(pickle.dumps(attributes)))
    run(made, (1, 1, 1), x, out, 64, 2.0, 64)
    assert torch.equal(out, 2 * x)


def test_functions_without_their_python_function_are_sent_as_what_they_are() -> None:
    @kp.jit
    def function(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    function.fn = function.__globals__ = function.used_global_vals = function.repr = None
    sent = pickle.loads(pickle.dumps(function))
    assert type(sent) is type(scale)
    assert (sent.__name__, sent.arg_names, sent.constexprs) == ("function", ["x", "BLOCK"], [1])
    assert pickle.loads(pickle.dumps(scale)) is scale


def test_kernels_for_other_machines_are_not_launched() -> None:
    other = KernelView(replace(compiled().kernel, target=Target.parse("amdgpu:gfx942")))
    with pytest.raises(TargetError, match="amdgpu:gfx942 cannot be launched from Python"):
        other._init_handles()


def test_configs_take_attributes_of_host_code() -> None:
    config = triton.Config({"BLOCK": 64}, num_warps=2)
    config.extra_options = {"by": "Inductor's autotune cache"}
    config.num_warps = 4
    assert config == triton.Config({"BLOCK": 64}, num_warps=4)
    assert hash(config) == hash(triton.Config({"BLOCK": 64}, num_warps=4))
