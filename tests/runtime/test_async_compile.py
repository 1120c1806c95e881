"""AsyncCompileMode: what warmup compiles, threads compile; launches find it, wait for it, or do it themselves."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompileTimeAssertionFailure
from kernelpack.kernel.source import _parsed, source_of
from kernelpack.runtime._async_compile import active_mode
from kernelpack.runtime.loaded import LoadedKernel


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))


class Later(Executor):
    """Does one thing when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting.append((Future(), partial(fn, *args, **kwargs)))
        return self.waiting[-1][0]

    def step(self) -> None:
        future, fn = self.waiting.pop(0)
        try:
            future.set_result(fn())
        except Exception as problem:
            future.set_exception(problem)


def filler() -> Any:
    @kp.jit
    def fill(out, VALUE: tl.constexpr):
        tl.static_assert(VALUE != 7, "seven")
        tl.store(out + tl.arange(0, 16), VALUE)

    return fill


def test_nothing_is_compiled_before_a_thread_does() -> None:
    fill, out, pool = filler(), torch.zeros(16), Later()
    with kp.AsyncCompileMode(pool):
        first, again, second = fill.warmup(out, 1), fill.warmup(out, 1), fill.warmup(torch.float16, 2)
        assert first is again is not second
        assert len(pool.waiting) == len(fill.device_caches[0][0]) == 2
        fill[(1,)](out, 1)  # nobody has begun: compiled here
        assert out.tolist() == [1.0] * 16
        assert not first.done()
        pool.step()
        assert first.result() is fill.warmup(out, 1)  # known
        pool.step()
        assert isinstance(second.result(), LoadedKernel)
        with pytest.raises(RuntimeError, match="already active"), kp.AsyncCompileMode(pool):
            pass
    assert active_mode.get() is None
    assert len(fill.device_caches[0][0]) == 2


def test_threads_compile_the_kernels_of_one_function_side_by_side() -> None:
    fill, outs = filler(), [torch.zeros(16, dtype=dtype) for dtype in (torch.float32, torch.int32, torch.bfloat16)]
    with ThreadPoolExecutor(3) as pool, kp.AsyncCompileMode(pool):
        futures = [fill.warmup(out, value) for out in outs for value in range(4)]
        for out in outs:
            fill[(1,)](out, 3)
            assert out.tolist() == [3] * 16
    assert len({id(future.result()) for future in futures}) == len(fill.device_caches[0][0]) == 12
    tuned = kp.autotune([kp.Config({"VALUE": value}) for value in (5, 6)], [])(fill)
    with ThreadPoolExecutor(2) as pool, kp.AsyncCompileMode(pool):
        pair = tuned.warmup(outs[0])
    assert [future.done() for future in pair] == [True, True]


def test_one_thread_parses_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 raises SystemError now and then where two do."""
    parse, parsing = ast.parse, threading.Lock()

    def watched(*args: Any, **kwargs: Any) -> ast.AST:
        assert parsing.acquire(blocking=False)
        time.sleep(0.02)
        parsing.release()
        return parse(*args, **kwargs)

    monkeypatch.setattr(ast, "parse", watched)
    kernels = [filler() for _ in range(4)]
    _parsed.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        sources = list(pool.map(lambda kernel: source_of(kernel.fn).text, kernels))
    assert len(set(sources)) == 1


@pytest.mark.parametrize("ignored", [False, True])
def test_leaving_raises_the_first_error(ignored: bool) -> None:
    fill = filler()
    with ThreadPoolExecutor(2) as pool:
        mode = kp.AsyncCompileMode(pool, ignore_errors=ignored)
        mode.__enter__()
        wrong = fill.warmup(torch.float32, 7)
        if ignored:
            mode.__exit__()
        else:
            with pytest.raises(CompileTimeAssertionFailure, match="seven"):
                mode.__exit__()
    assert active_mode.get() is None
    assert isinstance(wrong.exception(), CompileTimeAssertionFailure)
    assert len(fill.device_caches[0][0]) == 0
