"""What host code hangs into launches: hooks, metadata, caches, preloading; and switches that change how kernels compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.errors import CompilationError

LIMIT = 3
CONSTANT = tl.constexpr(4)


@kp.jit
def fill(out, value, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), value)


def test_launch_hooks_get_the_kernels_metadata(switches: Any) -> None:
    @kp.jit(launch_metadata=lambda grid, kernel, args: {"grid": grid, "value": args["value"], "warps": kernel.num_warps})
    def kernel(out, value):
        tl.store(out, value)

    log: list[Any] = []
    out = torch.zeros(1)
    kernel[(1,)](out, 2.0)
    switches.runtime.launch_enter_hook.add(lambda described: log.append(described.get()))
    switches.runtime.launch_exit_hook = lambda described: log.append(out.item())
    kernel[(1, 2)](out, 5.0, num_warps=2)
    assert log[0].items() >= {"name": "kernel", "grid": (1, 2, 1), "value": 5.0, "warps": 2}.items()
    assert log[1:] == [5.0]
    switches.runtime.launch_enter_hook = switches.runtime.launch_exit_hook = None
    kernel[(1,)](out, 7.0)
    assert len(log) == 2


def test_a_listener_is_told_of_what_compiling_took(switches: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    told: list[Any] = []

    @kp.jit
    def kernel(pair, out, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), tl.load(pair[0] + tl.arange(0, BLOCK)) * pair[1])

    pair, out = (torch.ones(16), 3), torch.zeros(16)
    with switches.compilation.scope():
        switches.compilation.listener = lambda *event: told.append(event)
        for _ in range(2):
            kernel[(1,)](pair, out, BLOCK=16)
        kernel.device_caches.clear()
        kernel[(1,)](pair, out, BLOCK=16)  # read from the folder
        source = told[0][0]
        again = kp.compile(source)  # from there too
    made, read, taken = told
    assert out.tolist() == [3.0] * 16
    assert [event[4] for event in told] == [False, True, True]
    assert source.name == "kernel"
    assert source.constants == {(2,): 16}
    assert made[1]["target"].backend == "cpu"
    assert made[1]["hash"] == read[1]["hash"] == again.hash
    assert [Path(path).is_file() for path in made[2].values()] == [True]
    assert taken[2] == made[2]
    times: knobs.CompileTimes = made[3]
    assert [name for name, _ in times.lowering_stages] == [name for name in again.asm if name != "ttir"]
    assert min(times.ir_initialization, times.total_lowering, times.store_results) > 0
    assert times.total == times.ir_initialization + times.total_lowering + times.store_results
    assert read[3].ir_initialization == read[3].total > 0


def test_pre_run_hooks_see_the_arguments() -> None:
    @kp.jit
    def add(a, BLOCK: tl.constexpr):
        tl.store(a + tl.arange(0, BLOCK), tl.load(a + tl.arange(0, BLOCK)) + 2)

    launch = add[(1,)]
    add.add_pre_run_hook(lambda *args, **kwargs: args[0].zero_())
    a = torch.ones(4)
    add[(1,)](a, 4)
    add.run(a, 4, grid=(1,), warmup=False)
    assert a.tolist() == [2.0] * 4
    launch(a, 4)  # bound before the hook was there
    assert a.tolist() == [4.0] * 4


def test_compile_hooks_caches_and_preloading(switches: Any) -> None:
    told: list[Any] = []
    switches.runtime.jit_cache_hook = lambda **info: told.append(info)
    switches.runtime.jit_post_compile_hook = lambda **info: told.append(info)
    fill.device_caches.clear()
    out = torch.zeros(4)
    for _ in range(2):
        fill[(1,)](out, 3.0, BLOCK=4, enable_fp_fusion=False)
    assert [info["fn"].jit_function for info in told] == [fill, fill]
    assert told[0]["compile"]["constants"] == {(2,): 4}
    assert told[0]["compile"]["signature"] == {"out": "*fp32", "value": "fp32", "BLOCK": "constexpr"}
    assert told[0]["compile"]["enable_fp_fusion"] is False
    assert "out: *fp32" in told[0]["repr"]
    (compiled,) = fill.device_caches[0][0].values()
    assert compiled.metadata.target.backend == "cpu"
    fill.device_caches.clear()
    assert len(fill.device_caches[0][0]) == 0
    assert fill.preload(told[0]["compile"]["specialization_data"]).hash == compiled.hash
    told[1:] = []
    fill[(1,)](out, 4.0, BLOCK=4, enable_fp_fusion=False)
    assert len(told) == 1
    with pytest.raises(
        RuntimeError, match=r"Specialization data is for tests\S+\.fill but trying to preload for tests\S+\.other"
    ):
        kp.jit(other).preload(told[0]["compile"]["specialization_data"])
    switches.runtime.jit_cache_hook = lambda **info: True  # it need not be compiled
    assert fill.warmup(out, 1.0, BLOCK=2) is None


def other(out):
    pass


def test_a_kernel_is_named_as_its_author_says() -> None:
    seen: list[Any] = []

    def name(specialization: Any) -> str:
        seen.append(specialization)
        return f"fill-{specialization.signature['out'][1:]}-{specialization.constants['BLOCK']}"

    @kp.jit(repr=name)
    def kernel(out, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    assert kernel.warmup(torch.float32, 8, grid=(1,)).name == "fill_fp32_8"
    assert seen[0].signature == {"out": "*fp32", "BLOCK": "constexpr"}
    out = torch.zeros(4)
    assert kernel[(1,)](out, 4).name == "fill_fp32_4"
    assert out.tolist() == [1.0] * 4


def test_hooks_are_told_where_a_function_stands(switches: Any) -> None:
    @kp.jit
    def kernel(out):
        tl.store(out, 1)

    told: list[Any] = []
    switches.runtime.jit_cache_hook = lambda **info: told.append(info["fn"])
    kernel.warmup(torch.int32, grid=(1,))
    assert told[0].name == "test_hooks_are_told_where_a_function_stands.<locals>.kernel"


def test_switches_end_with_their_scope(switches: Any) -> None:
    def hook(described: Any) -> None: ...

    switches.runtime.launch_enter_hook.add(hook)
    with switches.runtime.scope(), switches.autotuning.scope():
        switches.runtime.launch_enter_hook = lambda described: None
        switches.runtime.jit_cache_hook = hook
        switches.autotuning.print = True
    assert list(switches.runtime.launch_enter_hook) == [hook]
    assert switches.runtime.jit_cache_hook is None
    assert switches.autotuning.print is False


def test_the_default_precision_of_products(switches: Any) -> None:
    @kp.jit
    def kernel(x, HOW: tl.constexpr):
        at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)
        tile = tl.load(x + at)
        tl.store(x + at, tl.dot(tile, tile, input_precision=HOW))

    with switches.language.scope():
        switches.language.fp32_default = "ieee"
        assert "tf32" not in kernel.warmup(torch.float32, None, grid=(1,)).asm["ttir"]
        assert "inputPrecision = tf32x3" in kernel.warmup(torch.float32, "tf32x3", grid=(1,)).asm["ttir"]
    kernel.device_caches.clear()
    assert "inputPrecision = tf32" in kernel.warmup(torch.float32, None, grid=(1,)).asm["ttir"]


def test_warmup_takes_dtypes_for_tensors() -> None:
    compiled = fill.warmup(torch.float16, 2.0, BLOCK=8, grid=(1,))
    assert "!tt.ptr<f16>" in compiled.asm["ttir"]
    assert compiled.name == "fill"
    assert compiled.n_spills == 0


def test_globals_and_assertions_by_switch(switches: Any) -> None:
    @kp.jit
    def kernel(out):
        tl.device_assert(tl.load(out) < 99)
        tl.store(out, LIMIT)

    out = torch.zeros(1)
    with pytest.raises(CompilationError, match="Cannot access global variable LIMIT"):
        kernel[(1,)](out)
    switches.compilation.allow_non_constexpr_globals = True
    loaded = kernel[(1,)](out)
    assert out.item() == 3
    assert "tt.assert" not in loaded.asm["ttir"]
    switches.runtime.debug = True
    assert "tt.assert" in kernel.warmup(out, num_warps=2).asm["ttir"]
    with pytest.raises(AttributeError, match=r"RuntimeKnobs has no 'dbug'; it has .*debug"):
        switches.runtime.dbug = True


def test_reinterpreted_tensors() -> None:
    bits = torch.tensor([0x40490FDB], dtype=torch.int32)
    fill[(1,)](kp.reinterpret(bits, tl.float32), 1.0, BLOCK=1)
    assert bits.view(torch.float32).item() == 1.0
    assert kp.reinterpret(bits, tl.int32) is bits
    with pytest.raises(TypeError, match="Cannot reinterpret"):
        kp.reinterpret(3, tl.int32)


def test_functions_among_arguments_are_preloaded_by_name(switches: Any) -> None:
    @kp.jit
    def seventeen():
        return 17

    @kp.jit
    def kernel(out, FUNCTION: tl.constexpr):
        tl.store(out, FUNCTION())

    told: list[Any] = []
    switches.runtime.jit_cache_hook = lambda **described: told.append(described["compile"]["specialization_data"])
    out = torch.zeros((), dtype=torch.int32)
    compiled = kernel[(1,)](out, seventeen)
    kernel.device_caches.clear()
    assert kernel.preload(told[0]).hash == compiled.hash
    assert len(kernel.device_caches[0][0]) == 1
    told.clear()
    kernel[(1,)](out, seventeen)
    assert told == []
    assert out.item() == 17


def test_callers_see_the_new_text_of_a_function() -> None:
    @kp.jit
    def inner():
        return 1

    @kp.jit
    def kernel(out, FUNCTION: tl.constexpr):
        tl.store(out, FUNCTION() + inner())

    out = torch.zeros((), dtype=torch.int32)
    kernel[(1,)](out, inner)
    assert out.item() == 2
    inner._unsafe_update_src(inner.src.replace("1", "5"))
    kernel[(1,)](out, inner)
    assert out.item() == 10


def test_the_constants_that_a_function_reads() -> None:
    @kp.jit
    def kernel(out):
        tl.store(out, CONSTANT + LIMIT)

    assert kernel.used_global_vals == {
        ("CONSTANT", id(globals())): (CONSTANT, globals()),
        ("LIMIT", id(globals())): (3, globals()),
    }
    assert fill.used_global_vals == {}


def test_unloading_is_told(switches: Any) -> None:
    @kp.jit
    def kernel(out):
        tl.store(out, 1.0)

    told: list[Any] = []
    switches.runtime.kernel_unload_hook.add(lambda module, function, name, stages, hash: told.append((module, name)))
    loaded = kernel.warmup(torch.float32, grid=(1,))
    module = loaded.module
    loaded.__del__()
    loaded.__del__()
    assert told == [(module, "kernel")]
    assert loaded.module is None


def test_a_constant_that_is_set_is_another_one() -> None:
    held = tl.constexpr(42)

    @kp.jit
    def kernel(out):
        tl.store(out, held)

    out = torch.zeros(())
    kernel[(1,)](out)
    held.value = 43
    kernel[(1,)](out)
    assert out.item() == 43
