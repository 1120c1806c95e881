"""Functions with objects of their own are linked to the kernels that call them, which share them, and compute the same."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.assemble import ptx_to_cubin
from kernelpack.backends.cuda.assemble.objects import split_ptx
from kernelpack.errors import BuildError, OutOfResources
from kernelpack.options import Options
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.running import emulate


@kp.jit(noinline="object")
def centred(x, n):
    """Subtracts the mean: a sum over all warps, through shared memory that the caller provides."""
    return x - tl.sum(x, 0) / n


@kp.jit
def once(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, centred(tl.load(x + i, mask=i < n, other=0.0), n), mask=i < n)


@kp.jit
def squared(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = centred(tl.load(x + i, mask=i < n, other=0.0), n)
    tl.store(out + i, values * values, mask=i < n)


def launch(fn: kp.JITFunction, num_warps: int = 4) -> Launch:
    torch.manual_seed(0)
    x = torch.randint(-8, 8, (500,)).float()
    expected = x - x.sum() / 500
    arguments = {"x": x, "out": torch.zeros(500), "n": 500, "B": 512}
    result = {"out": expected if fn is once else expected * expected}
    return Launch(fn, (1,), arguments, result, tolerance=1e-6, options=Options(num_warps=num_warps))


@pytest.mark.parametrize("fn", [once, squared])
def test_they_compute_what_they_say(fn: kp.JITFunction) -> None:
    emulate(launch(fn), "cuda:sm_80")


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_two_kernels_share_one_object(target: str) -> None:
    kernels = [launch(fn).compile(target) for fn in (once, squared)]
    modules = [split_ptx(kernel.stages["ptx"]) for kernel in kernels]
    (first, shared), (second, again) = modules
    assert shared == again
    assert ".visible .entry" not in shared
    assert ".func  (" in shared
    for kernel in (first, second):
        assert ".extern .func" in kernel
        assert "call.uni" in kernel
    for kernel in kernels:
        assert b".text.centred__" in kernel.image
        assert kernel.metadata["registers"] > 0


def test_the_object_is_assembled_once() -> None:
    ptx_to_cubin._object_of.cache_clear()
    for fn in (once, squared):
        launch(fn).compile("cuda:sm_90a")
    counted = ptx_to_cubin._object_of.cache_info()
    assert (counted.misses, counted.hits) == (1, 1)


def test_its_registers_are_those_that_the_kernel_can_give() -> None:
    """A block of 32 warps has 64 registers a thread, which a function by itself does not know."""
    ptx_to_cubin._object_of.cache_clear()
    kernel = launch(once, num_warps=32).compile("cuda:sm_90a")
    assert kernel.metadata["registers"] <= 64


def test_without_a_linker_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    found = ptx_to_cubin.find_ptxas()
    assert found is not None
    alone = tmp_path / "ptxas"
    alone.symlink_to(found)
    monkeypatch.setattr(ptx_to_cubin, "find_ptxas", lambda: alone)
    with pytest.raises(BuildError, match=r'noinline="object".*nvlink'):
        launch(once).compile("cuda:sm_90a")


def test_without_ptxas_what_the_linker_reports_is_refused_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def serialised(arch: str, *modules: str) -> ptx_to_cubin.Assembled:
        return ptx_to_cubin.Assembled(b"", "info (C7512) Potential Performance Loss", "nvJitLink")

    monkeypatch.setattr(ptx_to_cubin, "find_ptxas", lambda: None)
    monkeypatch.setattr(ptx_to_cubin, "assemble_with_nvjitlink", serialised)
    with pytest.raises(OutOfResources, match="C7512"):
        launch(once).compile("cuda:sm_90a")


def test_without_any_assembler_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx_to_cubin, "find_ptxas", lambda: None)
    monkeypatch.setattr(ptx_to_cubin, "nvjitlink_version", lambda: None)
    with pytest.raises(BuildError, match="no assembler for PTX was found"):
        launch(once).compile("cuda:sm_90a")


def test_nvjitlink_links_them_where_there_is_no_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx_to_cubin, "find_ptxas", lambda: None)
    kernel = launch(once).compile("cuda:sm_80")
    assert b".text.once" in kernel.image


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="noinline='objects'"):
        kp.jit(noinline="objects")(centred.fn)
