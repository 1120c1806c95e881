"""Kernels whose helpers and constants are replaced between launches: each launch runs what the names stand for then."""

from __future__ import annotations

import importlib.util
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.runtime import compile
from tests.frontend.compiling import define

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built"),
    pytest.mark.usefixtures("compilations"),
]


def test_a_replaced_helper_or_constant_is_compiled_anew() -> None:
    names = define(
        """
        STEP = tl.constexpr(1)

        @kp.jit
        def helper(x):
            return x + 1

        @kp.jit
        def other(x):
            return x + 100

        @kp.jit
        def kernel(out):
            tl.store(out, helper(STEP))
        """
    )
    kernel, out = names["kernel"], torch.zeros(1)
    scope = kernel.fn.__globals__
    results = []
    for change in ({}, {"STEP": tl.constexpr(2)}, {"helper": names["other"]}):
        scope.update(change)
        kernel[(1,)](out)
        results.append(out.item())
    assert results == [2, 3, 102]


def test_what_compile_time_functions_read_and_call_is_noticed() -> None:
    names = define(
        """
        STEP = 1

        def twice(n):
            return 2 * n

        def thrice(n):
            return 3 * n

        @kp.constexpr_function
        def size():
            return twice(STEP)

        @kp.jit
        def kernel(out):
            tl.store(out, size())
        """
    )
    kernel, size, out = names["kernel"], names["size"], torch.zeros(1)
    scope = kernel.fn.__globals__
    results = []
    for change in ({}, {"STEP": 10}, {"twice": names["thrice"]}):
        scope.update(change)
        kernel[(1,)](out)
        results.append(out.item())
    size._unsafe_update_src("def size():\n    return STEP")
    kernel[(1,)](out)
    assert [*results, out.item()] == [2, 20, 30, 10]


def test_a_replaced_plain_function_of_a_module_is_noticed() -> None:
    host = ModuleType("host")
    given = define("def one():\n    return 1\n\ndef other():\n    return 2")
    kernel, out = define("@kp.jit\ndef kernel(out):\n    tl.store(out, host.size())", host=host)["kernel"], torch.zeros(1)
    results = []
    for function in (given["one"], given["other"], lambda: 3):
        host.size = function
        kernel[(1,)](out)
        results.append(out.item())
    assert results == [1, 2, 3]


def test_a_name_is_noticed_in_every_place_that_holds_it() -> None:
    shared = tl.constexpr(3)
    add = define("@kp.jit\ndef add(x):\n    return x + N", N=shared)["add"]
    multiply = define("@kp.jit\ndef multiply(x):\n    return x * N", N=shared)["multiply"]
    kernel = define("@kp.jit\ndef kernel(out):\n    tl.store(out, add(1) + 100 * multiply(1))", add=add, multiply=multiply)[
        "kernel"
    ]
    out = torch.zeros(1, dtype=torch.int32)
    results = []
    for function, value in ((add, shared), (add, tl.constexpr(4)), (add, shared), (multiply, tl.constexpr(5))):
        function.fn.__globals__["N"] = value
        kernel[(1,)](out)
        results.append(out.item())
    assert results == [304, 305, 304, 504]


def test_attributes_of_what_an_enclosing_function_holds_are_noticed() -> None:
    names = define(
        """
        import types

        class Sizes:
            N = tl.constexpr(2)

        def make():
            module, sizes = types.ModuleType("module"), tl.constexpr(Sizes)
            module.N = tl.constexpr(1)

            @kp.jit
            def kernel(out):
                tl.store(out, module.N + 10 * sizes.N)

            return kernel, module
        """
    )
    (kernel, module), out = names["make"](), torch.zeros(1)
    kernel[(1,)](out)
    assert out.item() == 21
    module.N = tl.constexpr(3)
    kernel[(1,)](out)
    assert out.item() == 23
    key = kernel.cache_key
    names["Sizes"].N = tl.constexpr(4)
    kernel[(1,)](out)
    assert out.item() == 43
    assert kernel.cache_key != key


def test_methods_that_compile_time_functions_call_are_looked_up_as_they_stand(compilations: list[Any]) -> None:
    """A class method is another object each time it is read: that alone compiles nothing anew."""
    names = define(
        """
        class Sizes:
            @classmethod
            def least(cls):
                return 4

        class OtherSizes:
            @classmethod
            def least(cls):
                return 8

        @kp.constexpr_function
        def size():
            return Sizes.least()

        @kp.jit
        def kernel(out):
            tl.store(out, size())
        """
    )
    kernel, out = names["kernel"], torch.zeros(1)
    for _ in range(3):
        kernel[(1,)](out)
    assert (out.item(), len(compilations)) == (4, 1)
    names["Sizes"].least = vars(names["OtherSizes"])["least"]
    kernel[(1,)](out)
    assert (out.item(), len(compilations)) == (8, 2)


def test_constants_of_functions_that_calls_or_containers_give_are_noticed() -> None:
    names = define(
        """
        STEP = tl.constexpr(1)

        @kp.jit
        def step(x):
            return x + STEP

        STEPS = tl.constexpr({"forward": (step,)})

        @kp.jit
        def kernel(out, FUNCTION: tl.constexpr, functions):
            tl.store(out, FUNCTION(0) + 10 * functions[0](0))

        @kp.jit
        def of_container(out):
            tl.store(out, STEPS["forward"][0](0))
        """
    )
    step, out = names["step"], torch.zeros(1)
    for value in (1, 2):
        step.fn.__globals__["STEP"] = tl.constexpr(value)
        names["kernel"][(1,)](out, step, (step,))
        assert out.item() == 11 * value
        names["of_container"][(1,)](out)
        assert out.item() == value


def test_what_is_replaced_while_a_kernel_compiles_is_noticed() -> None:
    kernel = define("STEP = tl.constexpr(1)\n@kp.jit\ndef kernel(out):\n    tl.store(out, STEP)")["kernel"]
    out = torch.zeros(1)

    def replace(*_: Any, **__: Any) -> None:
        knobs.compilation.listener = None
        kernel.fn.__globals__["STEP"] = tl.constexpr(2)
        kernel[(1,)](torch.zeros(1, dtype=torch.int32))  # the names are watched anew

    with knobs.compilation.scope():
        knobs.compilation.listener = replace
        kernel[(1,)](out)
    kernel[(1,)](out)
    assert out.item() == 2


def test_a_kernel_is_not_kept_as_what_it_was_to_be_before_a_name_was_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Later processes would run it in the place of the other."""
    kernel = define("STEP = tl.constexpr(1)\n@kp.jit\ndef kernel(out):\n    tl.store(out, STEP)")["kernel"]
    out, compile_kernel = torch.zeros(1), compile.compile_kernel
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))

    def replace(*args: Any) -> Any:
        kernel.fn.__globals__["STEP"] = tl.constexpr(2)
        return compile_kernel(*args)

    with monkeypatch.context() as patch:
        patch.setattr(compile, "compile_kernel", replace)
        kernel[(1,)](out)
    for value in (1, 2, 1):
        kernel.fn.__globals__["STEP"] = tl.constexpr(value)
        kernel[(1,)](out)
        assert out.item() == value


def test_threads_launch_while_a_constant_is_replaced() -> None:
    kernel = define("STEP = tl.constexpr(1)\n@kp.jit\ndef kernel(out):\n    tl.store(out, STEP)")["kernel"]
    stopping = threading.Event()

    def launch(_: int) -> set[float]:
        stored = set()
        while not stopping.is_set():
            out = torch.zeros(1)
            kernel[(1,)](out)
            stored.add(out.item())
        return stored

    with ThreadPoolExecutor(4) as threads:
        results = threads.map(launch, range(4))
        for number in range(20):
            kernel.fn.__globals__["STEP"] = tl.constexpr(1 + number % 2)
            time.sleep(0.01)
        stopping.set()
        assert set().union(*results) <= {1, 2}
    out = torch.zeros(1)
    kernel[(1,)](out)
    assert out.item() == 2
