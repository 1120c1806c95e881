"""Timing functions and comparing results, as in Triton's testing module: do_bench, perf_report, assert_close, what a GPU can do at most."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kernelpack.errors import LaunchError
from kernelpack.testing.device_rates import get_dram_gbps as get_dram_gbps
from kernelpack.testing.device_rates import get_max_simd_tflops as get_max_simd_tflops
from kernelpack.testing.device_rates import get_max_tensorcore_tflops as get_max_tensorcore_tflops
from kernelpack.testing.device_rates import nvsmi as nvsmi
from kernelpack.testing.reports import Benchmark, Mark, perf_report

__all__ = ["Benchmark", "Mark", "assert_close", "do_bench", "do_bench_cudagraph", "perf_report"]

_L2_BYTES = 256 << 20
"""What is overwritten between calls on a GPU: several times its L2 cache."""
_RETURN_MODES: dict[str, Callable[[Sequence[float]], Any]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "all": list,
}


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    device: str | None = None,
    compiled: bool = False,
) -> Any:
    """Returns the milliseconds that a call of `fn` takes.

    After a first call, which may compile, it is called for about `warmup` milliseconds untimed and for `rep` timed, clearing a
    GPU's L2 cache included. On a CPU a call that lasts longer than both together is timed once, and if `fn` is `compiled`
    there is no first call. `quantiles`, such as (0.5, 0.2, 0.8), gives a list of those; else `return_mode` is min, max, mean,
    median, or all, a list of every call's time. Tensors in `grad_to_none` lose their gradients before each call. `device` is a
    torch device type; default: cuda where there is one, else cpu. Raises LaunchError for a mode that does not exist.
    """
    import torch

    _check_mode(return_mode)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tensors = list(grad_to_none or ())

    def prepare() -> None:
        for tensor in tensors:
            tensor.grad = None

    if chosen == "cuda":
        times = _device_times_within(fn, prepare, warmup, rep)
    else:
        if not compiled:
            _host_time(fn, prepare)
        times = _host_times_within(fn, prepare, warmup, rep)
    return _summary(times, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Returns the milliseconds that a call of `fn` takes inside a CUDA graph of many calls, so without the time of launching.

    Graphs are run for about `rep` milliseconds ten times; the rest is as in `do_bench`. Needs a CUDA device.
    """
    import torch

    _check_mode(return_mode)
    tensors = list(grad_to_none or ())

    def prepare() -> None:
        for tensor in tensors:
            tensor.detach_()
            tensor.requires_grad_(True)
            tensor.grad = None

    cuda: Any = torch.cuda
    with cuda.stream(cuda.Stream()):
        fn()
        estimate = max(statistics.median(_device_times(fn, prepare, 5)), 1e-4)
        count = max(1, int(rep / estimate))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                prepare()
                fn()
        times = [time / count for time in _device_times(graph.replay, lambda: None, 10)]
    return _summary(times, quantiles, return_mode)


def _check_mode(return_mode: str) -> None:
    if return_mode not in _RETURN_MODES:
        raise LaunchError(f"return_mode is {return_mode!r}", cure=f"use one of {', '.join(_RETURN_MODES)}")


def _summary(times: list[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    if quantiles is not None:
        return [_quantile(times, fraction) for fraction in quantiles]
    return _RETURN_MODES[return_mode](times)


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Raises AssertionError unless two tensors, arrays or numbers agree: |x - y| <= atol + rtol * |y|, NaN equal to NaN.

    The tolerances are 0.01 and 0 by default.
    """
    import torch

    a, b = (value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value) for value in (x, y))
    a, b = a.double(), b.double()
    absolute, relative = (1e-2 if atol is None else atol), (0.0 if rtol is None else rtol)
    if a.shape != b.shape and a.numel() > 1:
        raise AssertionError(f"{err_msg} the shapes are {list(a.shape)} and {list(b.shape)}".strip())
    wrong = ~torch.isclose(a, b, atol=absolute, rtol=relative, equal_nan=True)
    if wrong.any():
        worst = (a - b).abs().nan_to_num(float("inf")).max().item()
        raise AssertionError(
            f"{err_msg} {int(wrong.sum())} of {wrong.numel()} elements are not close (atol={absolute}, rtol={relative}); "
            f"the largest difference is {worst}".strip()
        )


def times_of(fn: Callable[[], Any], count: int, device: str) -> list[float]:
    """Returns the milliseconds of each of `count` calls, on a GPU with a cold L2 cache. `device` is a torch device type."""
    if device == "cuda":
        return _device_times(fn, lambda: None, count)
    return [_host_time(fn, lambda: None) for _ in range(count)]


def _host_time(fn: Callable[[], Any], prepare: Callable[[], None]) -> float:
    prepare()
    start = time.perf_counter()
    fn()
    return (time.perf_counter() - start) * 1e3


def _host_times_within(fn: Callable[[], Any], prepare: Callable[[], None], warmup: float, rep: float) -> list[float]:
    """Returns the times of the calls that end after `warmup` milliseconds; there are more of them for `rep` milliseconds."""
    start = time.perf_counter()
    times: list[float] = []
    passed = 0.0
    while not times or passed < warmup + rep:
        took = _host_time(fn, prepare)
        passed = (time.perf_counter() - start) * 1e3
        if passed >= warmup:
            times.append(took)
    return times


def _device_times_within(fn: Callable[[], Any], prepare: Callable[[], None], warmup: float, rep: float) -> list[float]:
    """Returns the times of as many calls as fit into `rep` milliseconds, after a warm-up. A GPU is not to wait between calls, so
    their number is decided ahead."""
    _device_times(fn, prepare, 1)  # compiles, allocates
    start = time.perf_counter()
    _device_times(fn, prepare, 5)
    # With what lies between calls: to clear a cache takes longer than a small kernel.
    estimate = (time.perf_counter() - start) * 1e3 / 5
    _device_times(fn, prepare, max(1, int(warmup / estimate)))
    return _device_times(fn, prepare, max(1, int(rep / estimate)))


def _device_times(fn: Callable[[], Any], prepare: Callable[[], None], count: int) -> list[float]:
    import torch

    cache = torch.empty(_L2_BYTES, dtype=torch.int8, device="cuda")
    event: Callable[[], Any] = functools.partial(torch.cuda.Event, enable_timing=True)
    events = [(event(), event()) for _ in range(count)]
    for start, end in events:
        prepare()
        cache.zero_()
        start.record()
        fn()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def _quantile(times: Sequence[float], fraction: float) -> float:
    """Returns the time below which a fraction of the calls stays, between two neighbours in proportion."""
    ordered = sorted(times)
    place = fraction * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
