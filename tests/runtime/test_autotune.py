"""@autotune and @heuristics choose as Triton's do; testing.do_bench times."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.errors import CompilationError, LaunchError
from kernelpack.files.cache import CacheFolder
from kernelpack.runtime.autotune import Autotuner, Heuristics
from tests.frontend.compiling import define

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))


def accumulate() -> Any:
    """Returns a kernel that adds x to out, and says in `used` which block did it."""
    return define(
        """
        @kp.jit
        def accumulate(x, out, used, n, BLOCK: tl.constexpr):
            tl.static_assert(BLOCK <= 128, "too large")
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            mask = offsets < n
            tl.store(out + offsets, tl.load(out + offsets, mask=mask) + tl.load(x + offsets, mask=mask), mask=mask)
            tl.store(used, BLOCK)
        """
    )["accumulate"]


class Stopwatch:
    """A do_bench that finds the blocks of `fast` fast: it knows which was used, and runs each call three times."""

    def __init__(self, used: torch.Tensor, fast: int) -> None:
        self.used, self.fast, self.tried = used, fast, []

    def __call__(self, call: Any, quantiles: Any) -> list[float]:
        for _ in range(3):
            call()
        self.tried.append(int(self.used))
        return [1.0 if int(self.used) == self.fast else 2.0] * len(quantiles)


BLOCKS = [kp.Config({"BLOCK": size}) for size in (32, 64, 128)]


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (kp.cdiv(meta["n"], meta["BLOCK"]),)


def test_the_fastest_config_is_found_once_for_each_key() -> None:
    x, used = torch.randn(100), torch.zeros((), dtype=torch.int32)
    watch = Stopwatch(used, 64)
    tuned = kp.autotune(BLOCKS, ["n"], do_bench=watch, restore_value=["out"])(accumulate())
    out = torch.zeros(100)
    tuned[grid](x, out, used, 100)
    assert watch.tried == [32, 64, 128]
    assert used == 64
    assert tuned.best_config is BLOCKS[1]
    torch.testing.assert_close(out, x, rtol=0, atol=0)  # as if it had run once
    tuned[grid](x, out, used, n=100)
    assert len(watch.tried) == 3
    torch.testing.assert_close(out, 2 * x, rtol=0, atol=0)
    tuned[grid](x, out, used, 99)
    tuned[grid](x.half(), out, used, 99)
    assert len(watch.tried) == 9, "another value of the key, another dtype"
    assert tuned.configs_timings[BLOCKS[0]] == [2.0, 2.0, 2.0]


def test_tensors_are_zeroed_before_each_run_of_a_search_and_at_its_end() -> None:
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.full((100,), 5.0)
    tuned = kp.autotune(BLOCKS, ["n"], reset_to_zero=["out"], do_bench=Stopwatch(used, 32))(accumulate())
    tuned[grid](x, out, used, 100)
    torch.testing.assert_close(out, x, rtol=0, atol=0)
    tuned[grid](x, out, used, 100)
    torch.testing.assert_close(out, 2 * x, rtol=0, atol=0)


def test_configs_that_do_not_compile_lose_and_if_none_does_the_error_is_told() -> None:
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.zeros(100)
    large, small = kp.Config({"BLOCK": 256}), kp.Config({"BLOCK": 32})
    tuned = kp.autotune([large, small], [], do_bench=Stopwatch(used, 256))(accumulate())
    tuned[grid](x, out, used, 100)
    assert tuned.best_config is small
    assert tuned.configs_timings[large] == [float("inf")] * 3
    with pytest.raises(CompilationError, match="too large"):
        kp.autotune([large, kp.Config({"BLOCK": 512})], [])(accumulate())[grid](x, out, used, 100)


def test_pruning() -> None:
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.zeros(100)
    seen: list[Any] = []

    def prune(configs: Any, named: dict[str, Any], **kwargs: Any) -> Any:
        seen.append((sorted(named), sorted(kwargs)))
        return [config for config in configs if config.kwargs["BLOCK"] > 32]

    def expected(BLOCK: int, n: int, num_warps: int, **rest: Any) -> float:
        return abs(BLOCK - 64) + n + num_warps

    watch = Stopwatch(used, 128)
    tuned = kp.autotune(BLOCKS, ["n"], {"early_config_prune": prune}, do_bench=watch)(accumulate())
    tuned[grid](x, out, used, n=100)
    assert watch.tried == [64, 128]
    assert seen == [(["out", "used", "x"], ["n"])]
    for top in (1, 0.34):
        watch = Stopwatch(used, 128)
        tuned = kp.autotune(BLOCKS, ["n"], {"perf_model": expected, "top_k": top}, do_bench=watch)(accumulate())
        tuned[grid](x, out, used, 100)
        assert watch.tried == []  # what is left alone is not timed
        assert tuned.best_config.kwargs["BLOCK"] == 64
    with pytest.raises(LaunchError, match=r"^Autotuner error: No valid autotuner configs after pruning"):
        kp.autotune(BLOCKS, [], {"early_config_prune": lambda *a, **k: []})(accumulate())[grid](x, out, used, 100)


def test_a_config_is_not_taken_over_where_the_pruner_refuses_it() -> None:
    """A mask that only some calls have, say, and that only some blocks can deal with."""
    kernel = define(
        """
        @kp.jit
        def fill(out, used, n, SMALL: tl.constexpr, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + offsets, 1.0, mask=offsets < n)
            tl.store(used, BLOCK)
        """
    )["fill"]

    def prune(configs: Any, named: dict[str, Any], *, SMALL: bool, **kwargs: Any) -> Any:
        return [config for config in configs if not SMALL or config.kwargs["BLOCK"] < 128]

    used, out = torch.zeros((), dtype=torch.int32), torch.zeros(100)
    watch = Stopwatch(used, 128)
    tuned = kp.autotune(BLOCKS, ["n"], {"early_config_prune": prune}, do_bench=watch)(kernel)
    tuned[grid](out, used, n=100, SMALL=False)
    assert tuned.best_config is BLOCKS[2]
    tuned[grid](out, used, n=100, SMALL=True)
    assert tuned.best_config is not BLOCKS[2]
    assert watch.tried == [32, 64, 128, 32, 64]
    tuned[grid](out, used, n=100, SMALL=False)
    assert tuned.best_config is BLOCKS[2]
    assert len(watch.tried) == 5


def test_hooks() -> None:
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.zeros(100)
    log: list[Any] = []
    configs = [kp.Config({"BLOCK": size}, pre_hook=lambda named: log.append(named["BLOCK"])) for size in (32, 64)]
    tuned = kp.autotune(
        configs,
        ["n"],
        pre_hook=lambda named, reset_only=False: log.append("end" if reset_only else "before"),
        post_hook=lambda named, exception: log.append(exception),
        do_bench=Stopwatch(used, 64),
    )(accumulate())
    tuned[grid](x, out, used, 100)
    assert log == [32, "before", None] * 3 + [64, "before", None] * 3 + ["end", 64]
    tuned[grid](x, out, used, 100)
    assert log[-2:] == [64, 64]


def test_warmup_compiles_every_config_and_launches_none() -> None:
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.zeros(100)
    tuned = kp.autotune(BLOCKS, ["n"])(accumulate())
    assert len(tuned.warmup(x, out, used, 100, grid=grid)) == 3
    assert used == 0


def meeting(number: int) -> Any:
    """Returns a kernel that is compiled when so many compilations have come to one place, or that fails."""
    place = threading.Barrier(number, timeout=20)

    @kp.constexpr_function
    def meet() -> int:
        place.wait()
        return 1

    @kp.jit
    def kernel(out, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), meet())

    return kernel


@pytest.mark.parametrize("warmup", [True, False])
def test_configs_are_compiled_side_by_side(warmup: bool) -> None:
    out, used = torch.zeros(128), torch.zeros((), dtype=torch.int32)
    tuned = kp.autotune(BLOCKS, [], do_bench=Stopwatch(used, 0))(meeting(len(BLOCKS)))
    tuned.run(out, grid=(1,), warmup=warmup)
    assert int(out.sum()) == (0 if warmup else 128)


def test_hooks_see_a_config_before_it_is_compiled() -> None:
    """They may set what it is compiled for: blocks of descriptors."""
    set_by_hook = kp.constexpr(0)

    @kp.jit
    def kernel(out, BLOCK: tl.constexpr):
        tl.static_assert(set_by_hook == BLOCK)
        tl.store(out, BLOCK)

    def hook(named: dict[str, Any]) -> None:
        set_by_hook.value = named["BLOCK"]

    out = torch.zeros((), dtype=torch.int32)
    configs = [kp.Config(config.kwargs, pre_hook=hook) for config in BLOCKS]
    tuned = kp.autotune(configs, [], do_bench=Stopwatch(out, 64))(kernel)
    tuned.run(out, grid=(1,))
    assert float("inf") not in {timing[0] for timing in tuned.configs_timings.values()}


def test_a_search_times_by_itself() -> None:
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.zeros(100)
    tuned = kp.autotune(BLOCKS[:2], ["n"], warmup=1, rep=1, restore_value=["out"])(accumulate())
    tuned[grid](x, out, used, 100)
    assert all(0 < timing[1] <= timing[0] <= timing[2] for timing in tuned.configs_timings.values())
    torch.testing.assert_close(out, x, rtol=0, atol=0)


def test_graphs_are_for_gpus_alone() -> None:
    x, out, used = torch.ones(64), torch.zeros(64), torch.zeros((), dtype=torch.int32)
    tuned = kp.autotune(BLOCKS, ["n"], reset_to_zero=["out"], warmup=1, rep=1, use_cuda_graph=True)(accumulate())
    tuned[(kp.cdiv(64, 32),)](x, out, used, 64)
    assert set(tuned.configs_timings) == set(BLOCKS)


def test_mistakes_are_named() -> None:
    with pytest.raises(LaunchError, match="autotune of accumulate: restore_value names size"):
        kp.autotune(BLOCKS, ["n"], restore_value=["size"])(accumulate())
    with pytest.warns(UserWarning, match="autotune of accumulate: key names size, which no parameter is called"):
        kp.autotune(BLOCKS, ["n", "size"])(accumulate())
    x, used = torch.zeros(4), torch.zeros((), dtype=torch.int32)
    with pytest.raises(LaunchError, match="BLOCK is chosen by the configs, and given by the call"):
        kp.autotune(BLOCKS[:1], [])(accumulate())[(1,)](x, x, used, 4, BLOCK=32)
    with pytest.raises(LaunchError, match="num_warps is chosen by the configs"):
        kp.autotune(BLOCKS[:1], [])(accumulate())[(1,)](x, x, used, 4, num_warps=8)


def test_heuristics_see_arguments_configs_and_each_other() -> None:
    names = define(
        """
        @kp.jit
        def kernel(out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
            tl.store(out, n * 1000 + TWICE * 10 + EVEN)
        """
    )
    rules = {"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "TWICE": lambda args: 2 * args["BLOCK"] + args["EVEN"]}
    for wrap in (
        lambda fn: kp.autotune([kp.Config({"BLOCK": 4})], ["n"])(kp.heuristics(rules)(fn)),
        lambda fn: kp.heuristics(rules)(fn),
    ):
        wrapped = wrap(names["kernel"])
        given = {} if wrapped.__class__.__name__ == "Autotuner" else {"BLOCK": 4}
        out = torch.zeros(1, dtype=torch.int32)
        for n, expected in ((8, 8091), (9, 9080)):
            wrapped[(1,)](out, n, **given)
            assert out.item() == expected


def test_configs_are_keys_and_print() -> None:
    config = kp.Config({"BLOCK": 64}, num_warps=8, maxnreg=128)
    assert config.all_kwargs() == {"BLOCK": 64, "num_warps": 8, "num_stages": 3, "num_ctas": 1, "maxnreg": 128}
    assert str(config) == "BLOCK: 64, num_warps: 8, num_stages: 3, num_ctas: 1, maxnreg: 128"
    assert {config: 1}[kp.Config({"BLOCK": 64}, num_warps=8, maxnreg=128)] == 1
    assert kp.Config({}) != config
    assert kp.Config({}, launch_pdl=True).options()["launch_pdl"]


def test_do_bench() -> None:
    calls: list[int] = []
    parameter = torch.zeros(2, requires_grad=True)

    def call() -> None:
        assert parameter.grad is None
        parameter.grad = torch.ones(2)
        calls.append(1)

    kp.testing.do_bench(call, warmup=0.01, rep=0.01, grad_to_none=[parameter], device="cpu")
    assert len(calls) >= 2  # one that may compile, and a timed one: more where the machine is quick enough
    calls.clear()

    def work() -> None:
        calls.append(1)

    times = kp.testing.do_bench(work, warmup=0.01, rep=0.1, return_mode="all", device="cpu")
    assert len(calls) > len(times) >= 1
    low, middle, high = kp.testing.do_bench(work, warmup=0, rep=0.1, quantiles=(0.0, 0.5, 1.0), device="cpu")
    assert 0 < low <= middle <= high
    for mode in ("min", "max", "mean", "median"):
        assert kp.testing.do_bench(work, warmup=0, rep=0.01, return_mode=mode, device="cpu") > 0
    with pytest.raises(LaunchError, match="return_mode is 'best'"):
        kp.testing.do_bench(work, return_mode="best")


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def pass_by(self, milliseconds: float) -> None:
        self.now += milliseconds * 1e-3


def test_on_a_cpu_calls_are_timed_one_by_one_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a minute is not made eight times."""
    clock = Clock(monkeypatch)
    durations: list[float] = []

    def call() -> None:
        clock.pass_by(durations.pop(0))

    def times(*milliseconds: float, compiled: bool = False) -> Any:
        durations[:] = milliseconds
        found = kp.testing.do_bench(call, warmup=25, rep=100, return_mode="all", device="cpu", compiled=compiled)
        assert not durations
        return pytest.approx(found)

    assert times(9000, 700) == [700], "the first one compiles"
    assert times(700, compiled=True) == [700]
    assert times(9000, 20, 30, 40, 50) == [30, 40, 50]
    assert times(20, 30, 40, 50, compiled=True) == [30, 40, 50]
    durations[:] = [1.0] * 200
    assert len(kp.testing.do_bench(call, warmup=25, rep=100, return_mode="all", device="cpu")) in (100, 101)


def adding_up() -> Any:
    """Returns a kernel that counts its launches."""
    return define(
        """
        @kp.jit
        def adding_up(count, BLOCK: tl.constexpr):
            tl.store(count, tl.load(count) + 1)
        """
    )["adding_up"]


def test_a_search_on_a_cpu_makes_a_long_call_once_for_each_config(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    count = torch.zeros((), dtype=torch.int32)
    tuned = kp.autotune(
        BLOCKS, [], pre_hook=lambda named, reset_only: clock.pass_by(300), post_hook=lambda named, exception: None
    )(adding_up())
    tuned[(1,)](count)
    assert count == len(BLOCKS) + 1


def test_configs_that_are_the_same_to_a_cpu_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    count = torch.zeros((), dtype=torch.int32)
    timed: list[tuple[int, int]] = []

    def note(named: dict[str, Any]) -> None:
        timed.append((named["BLOCK"], named["num_warps"]))
        clock.pass_by(named["BLOCK"] * 10)

    configs = [kp.Config({"BLOCK": size}, num_warps=warps, pre_hook=note) for warps in (4, 8) for size in (64, 32)]
    tuned = kp.autotune(configs, [])(adding_up())
    tuned[(1,)](count)
    assert set(timed) == {(64, 4), (32, 4)}
    assert list(tuned.configs_timings) == configs
    assert tuned.configs_timings[configs[3]] == tuned.configs_timings[configs[1]] == pytest.approx([320.0] * 3)
    assert tuned.best_config is configs[1]
    watch = Stopwatch(count, 0)
    tuned = kp.autotune(configs, [], do_bench=watch)(adding_up())
    tuned[(1,)](count)
    assert len(watch.tried) == len(configs), "the author's own function may tell them apart"


def test_a_kernel_may_call_a_parameter_as_an_option_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = define(
        """
        @kp.jit
        def fill(out, num_warps: tl.constexpr):
            tl.store(out + num_warps, 1)
        """
    )["fill"]
    clock, out = Clock(monkeypatch), torch.zeros(16, dtype=torch.int32)
    configs = [kp.Config({}, num_warps=warps, pre_hook=lambda named: clock.pass_by(200)) for warps in (4, 8)]
    kp.autotune(configs, [])(kernel)[(1,)](out)
    assert out.nonzero().flatten().tolist() == [4, 8]


def test_clearing_the_cache_counts_in_the_time_that_measuring_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of microseconds is not repeated for ten thousand clearings of a GPU's cache: searches took ten times as long."""
    calls: list[int] = []

    def device_times(fn: Any, prepare: Any, count: int) -> list[float]:
        for _ in range(count):
            time.sleep(0.002)
            fn()
        return [0.01] * count

    monkeypatch.setattr(kp.testing, "_device_times", device_times)
    assert kp.testing.do_bench(lambda: calls.append(1), warmup=10, rep=20, device="cuda") == 0.01
    assert 8 <= len(calls) <= 24


def test_results_are_kept_and_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    told: list[dict[str, Any]] = []
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    monkeypatch.setattr(knobs.autotuning, "listener", lambda **found: told.append(found))
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.zeros(100)
    watch = Stopwatch(used, 64)
    tuned = kp.autotune(BLOCKS, ["n"], do_bench=watch, cache_results=True)(accumulate())
    tuned[grid](x, out, used, 100)
    tried = len(watch.tried)
    tuned[grid](x, out, used, 100)  # remembered by this process
    tuned.cache.clear()
    tuned[grid](x, out, used, 100)  # remembered by the disk
    assert len(watch.tried) == tried == len(BLOCKS)
    assert [(found["cache_hit"], found["best_config"].kwargs["BLOCK"]) for found in told] == [(False, 64), (True, 64)]
    assert told[0]["fn"] is tuned.base_fn
    assert told[0]["duration"] > 0
    assert told[1]["duration"] is None
    assert "best config BLOCK: 64" in capsys.readouterr().out


@pytest.mark.parametrize("kept", ["", "[]", "1" + "0" * 400, "[1" + "0" * 400 + "]", '"x"', "null", "[" * 100_000])
def test_results_that_were_altered_are_found_anew(tmp_path: Path, kept: str) -> None:
    tuner = kp.autotune(BLOCKS, ["n"])(accumulate())
    with knobs.cache.scope():
        knobs.cache.dir = str(tmp_path)
        for found, best in (("[Infinity, 0.2]", BLOCKS[0]), (kept, None)):
            times = (f"{json.dumps(str(config))}: {found}" for config in BLOCKS)
            CacheFolder(tmp_path).write("x.json", f"{{{', '.join(times)}}}".encode())
            assert tuner._remembered("x.json", BLOCKS) == best


def test_what_is_no_tensor_cannot_be_reset() -> None:
    x, used, out = torch.randn(100), torch.zeros((), dtype=torch.int32), torch.zeros(100)
    for names in ({"reset_to_zero": ["n"]}, {"restore_value": ["n"]}):
        (what,) = names
        with pytest.raises(LaunchError, match=rf"autotune of accumulate: {what} names n, which is of type int"):
            kp.autotune(BLOCKS, ["n"], **names)(accumulate())[grid](x, out, used, 100)
    with pytest.raises(LaunchError, match="heuristics of accumulate: BLOCK is 8"):
        kp.heuristics({"BLOCK": 8})(accumulate())


def test_tuners_are_made_and_derived_as_those_of_triton() -> None:
    class Counting(Autotuner):
        calls = 0

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().run(*args, **kwargs)

    kernel, x = accumulate(), torch.ones(100)
    out, used = torch.zeros(100), torch.zeros(1, dtype=torch.int32)
    tuner = Counting(kernel, kernel.arg_names, [kp.Config({"BLOCK": 32})], ["n"], None, None)
    heuristics = Heuristics(tuner, tuner.arg_names, {"n": lambda arguments: arguments["x"].numel()})
    heuristics[grid](x, out, used)
    assert torch.equal(out, x)
    assert tuner.calls == 1


def test_derived_tuners_may_replace_the_hooks_and_call_the_parts_of_a_search() -> None:
    told = []

    class Own(Autotuner):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if not self.user_defined_pre_hook and not self.user_defined_post_hook:
                self.pre_hook = lambda arguments, reset_only=False: told.append(("before", arguments["BLOCK"]))
                self.post_hook = lambda arguments, exception: told.append(("after", type(exception).__name__))

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            times = {config: self._bench(*args, config=config, **kwargs) for config in self.prune_configs(kwargs)}
            fastest = min(times, key=lambda config: times[config])
            assert [min(time) for time in times.values()] == [2.0, 1.0, float("inf")]
            return self.fn.run(*args, **kwargs, **fastest.all_kwargs())

    kernel, x = accumulate(), torch.ones(100)
    out, used = torch.zeros(100), torch.zeros(1, dtype=torch.int32)
    pruning = {"early_config_prune": lambda configs, arguments, **kwargs: configs[arguments["n"] > 64 :]}
    tuner = Own(
        kernel, kernel.arg_names, [*BLOCKS, kp.Config({"BLOCK": 256})], ["n"], None, None,
        prune_configs_by=pruning, do_bench=Stopwatch(used, 128),
    )  # fmt: skip
    tuner[grid](x, out, used, 100)
    assert int(used) == 128
    assert told == [*[("before", 64), ("after", "NoneType")] * 3, *[("before", 128), ("after", "NoneType")] * 3, ("before", 256), ("after", "CompileTimeAssertionFailure")]  # fmt: skip
