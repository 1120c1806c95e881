"""Ways of calling an op: what it does under torch's modes, transformations and tracers."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.probes.calls import Call, as_function, packet, run
from tests.probes.draw import Draw
from tests.probes.gradients import GRADIENTS
from tests.probes.judge import expect, result_of, same_bits, wrong, wrong_values
from tests.probes.rules import Refusal, refusals

Mode = Callable[[Draw, Call], str]


def plain(draw: Draw, call: Call) -> str:
    return expect(call, lambda: run(call))


def by_name(draw: Draw, call: Call) -> str:
    args, kwargs = call.spelled(by_name=True)
    return expect(call, lambda: packet(call.op)(*args, **kwargs))


def overload(draw: Draw, call: Call) -> str:
    args, kwargs = call.spelled()
    return expect(call, lambda: packet(call.op).default(*args, **kwargs))


def twice(draw: Draw, call: Call) -> str:
    """Two calls give the same bits."""
    return expect(call, lambda: (run(call), run(call)), right=lambda got: "" if same_bits(*got) else "two calls differ")


# -- modes that change nothing -----------------------------------------------------------------------------------------------------


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _set(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


CONTEXTS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "deterministic": lambda: _set(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "one thread": lambda: _set(torch.get_num_threads, torch.set_num_threads, 1),
    "three threads": lambda: _set(torch.get_num_threads, torch.set_num_threads, 3),
    "default float64": lambda: _set(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default meta": lambda: torch.device("meta"),
    "function mode": _Functions,
    "dispatch mode": _Dispatch,
    "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    "profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
}


def _within(context: Callable[[], AbstractContextManager[Any]]) -> Mode:
    def mode(draw: Draw, call: Call) -> str:
        def inside() -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with context():
                    return run(call)

        return expect(call, inside)

    return mode


def inference_tensors(draw: Draw, call: Call) -> str:
    """Tensors that inference mode made, used outside of it."""
    with torch.inference_mode():
        made = call.given(**{name: x.clone() if x.is_contiguous() else x.view(x.shape) for name, x in call.tensors.items()})
    return expect(call, lambda: run(made))


# -- vmap: each slice is a call of its own -----------------------------------------------------------------------------------------


def _mapped(dims: Callable[[Draw, torch.Tensor], int | None]) -> Mode:
    def mode(draw: Draw, call: Call) -> str:
        count = draw.any([1, 2, 3])
        names = list(call.tensors)
        placed: dict[str, int | None] = {name: dims(draw, call.arguments[name]) for name in names}
        if all(dim is None for dim in placed.values()):
            placed[names[0]] = 0
        stacked: dict[str, torch.Tensor] = {}
        slices: list[Call] = [call.given() for _ in range(count)]
        for name, dim in placed.items():
            x = call.arguments[name]
            stacked[name] = x if dim is None else torch.stack([x if i == 0 else _other(x) for i in range(count)], dim)
            if dim is not None:
                slices = [one.given(**{name: part}) for one, part in zip(slices, stacked[name].unbind(dim), strict=True)]
        refused = refusals(slices[0])
        mapped = torch.func.vmap(
            lambda *tensors: run(call.given(**dict(zip(names, tensors, strict=True)))), tuple(placed.values())
        )

        def right(got: torch.Tensor) -> str:
            return next((problem for one, part in zip(slices, got, strict=True) if (problem := wrong_values(one, part))), "")

        return expect(call, lambda: mapped(*stacked.values()), refused=refused, right=right)

    return mode


def mapped_twice(draw: Draw, call: Call) -> str:
    """One vmap within another, each along dimensions of its own."""
    names = list(call.tensors)
    twice = [torch.stack([x, _other(x), x]).expand(2, 3, *x.shape) for x in call.tensors.values()]
    inner = torch.func.vmap(lambda *xs: run(call.given(**dict(zip(names, xs, strict=True)))))
    slices = [call.given(**{name: x[0, i] for name, x in zip(names, twice, strict=True)}) for i in range(3)]

    def right(got: torch.Tensor) -> str:
        same = all(same_bits(got[0, i], got[1, i]) for i in range(3))
        place = draw.number(0, 2)
        return wrong_values(slices[place], got[1, place]) if same else "equal slices have different results"

    return expect(call, lambda: torch.func.vmap(inner)(*twice), refused=refusals(slices[0]), right=right)


def mapped_over_nothing(draw: Draw, call: Call) -> str:
    """Torch maps ops that it does not know over some slices only."""
    names = list(call.tensors)
    none = [x.new_empty((0, *x.shape)) for x in call.tensors.values()]
    refused = [Refusal("does not support vmap over dims of size 0"), *refusals(call)]
    over = torch.func.vmap(lambda *xs: run(call.given(**dict(zip(names, xs, strict=True)))))
    return expect(call, lambda: over(*none), refused=refused)


def _other(x: torch.Tensor) -> torch.Tensor:
    """The same rows in the opposite order, which keeps what is extreme in them."""
    order = torch.arange(x.shape[0]).flip(0) if x.dim() else None
    return x if order is None or x.dim() == 1 else torch.stack([x[i] for i in order]) if len(order) else x


# -- tracers and other processes ---------------------------------------------------------------------------------------------------


def fake(draw: Draw, call: Call) -> str:
    """The fake kernel gives the metadata that the op gives."""
    with FakeTensorMode() as mode:
        given = call.given(**{name: mode.from_tensor(x) for name, x in call.tensors.items()})
    refused = [refusal for refusal in refusals(call) if not refusal.by_value]

    def right(got: Any) -> str:
        if refusals(call):
            found, expected = (tuple(got.shape), got.dtype), result_of(call)
            return "" if found == expected else f"the fake gave {found}, expected {expected}"
        real = run(call)
        found = (got.shape, got.dtype, got.stride(), got.device)
        return (
            ""
            if found == (real.shape, real.dtype, real.stride(), real.device)
            else f"the fake gave {found}, not {real.stride()}"
        )

    return expect(call, lambda: run(given), refused=refused, right=right)


def meta(draw: Draw, call: Call) -> str:
    given = call.given(**{name: x.to("meta") for name, x in call.tensors.items()})
    refused = [refusal for refusal in refusals(given) if not refusal.by_value]

    def right(got: Any) -> str:
        found = (tuple(got.shape), got.dtype)
        return "" if found == result_of(call) and got.is_meta else f"gave {found} on {got.device}, expected {result_of(call)}"

    return expect(call, lambda: run(given), refused=refused, right=right)


def _traced(trace: Callable[[Callable[..., Any], tuple[torch.Tensor, ...]], Callable[..., Any]]) -> Mode:
    def mode(draw: Draw, call: Call) -> str:
        function, tensors = as_function(call)

        def traced() -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return trace(function, tensors)(*tensors)

        return expect(call, traced)

    return mode


def _compiled(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


def _compiled_dynamic(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)


def _jit_traced(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    """torch checks a trace with copies, which lie otherwise where a tensor repeats elements."""
    return torch.jit.trace(function, tensors, check_trace=all(x.clone().stride() == x.stride() for x in tensors))


def _exported(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    class Module(torch.nn.Module):
        def forward(self, *xs: torch.Tensor) -> Any:
            return function(*xs)

    return torch.export.export(Module(), tensors).module()


def _checkpointed(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    return lambda *xs: torch.utils.checkpoint.checkpoint(function, *xs, use_reentrant=False)


class _Module(torch.nn.Module):
    """Calls an op with buffers that torch.func.functional_call replaces."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call
        for name, x in call.tensors.items():
            self.register_buffer(f"of_{name}", torch.zeros_like(x))

    def forward(self) -> Any:
        return run(self.call.given(**{name: getattr(self, f"of_{name}") for name in self.call.tensors}))


def functional_call(draw: Draw, call: Call) -> str:
    module = _Module(call)
    buffers = {f"of_{name}": x for name, x in call.tensors.items()}
    return expect(call, lambda: torch.func.functional_call(module, buffers))


def threads(draw: Draw, call: Call) -> str:
    """Four threads at the same time give the same bits."""
    got: list[Any] = [None] * 4

    def work(place: int) -> None:
        try:
            got[place] = run(call)
        except Exception as error:
            got[place] = error

    def together() -> Any:
        workers = [threading.Thread(target=work, args=(place,)) for place in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if isinstance(got[0], Exception):
            raise got[0]
        return got

    def right(results: list[Any]) -> str:
        same = all(isinstance(other, torch.Tensor) and same_bits(other, results[0]) for other in results)
        return wrong(call, results[0]) if same else "threads give different results"

    return expect(call, together, right=right)


def fork(draw: Draw, call: Call) -> str:
    """A forked process gives the same bits, with one thread as data loaders' workers: no more survive a fork of torch's threads."""
    if refusals(call):
        return plain(draw, call)
    expected = run(call)
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            os._exit(0 if same_bits(run(call), expected) else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    return "" if status == 0 else f"a forked process ends with status {status}"


def _by(compile_: Callable[[Callable[..., Any], tuple[torch.Tensor, ...]], Callable[..., Any]]) -> Mode:
    """Compilers put errors into others of their own."""

    def mode(draw: Draw, call: Call) -> str:
        function, tensors = as_function(call)
        refused = [Refusal(refusal.said.replace(r"\n", r"(\n|\\n)"), types=(Exception,)) for refusal in refusals(call)]
        return expect(call, lambda: compile_(function, tensors)(*tensors), refused=refused)

    return mode


def checked_by_torch(draw: Draw, call: Call) -> str:
    """torch's own checks of an op: schema, aliases and writes, the fake kernel."""
    if refusals(call) or any(x.numel() == 0 for x in call.tensors.values()):  # its copies of empty tensors fail
        return plain(draw, call)
    args, kwargs = call.spelled()
    tests = ["test_autograd_registration", "test_faketensor"]
    if call.op != "scaled_matmul":  # torch cannot sum 8-bit floats, as this test does
        tests.append("test_schema")
    checked = torch.library.opcheck(packet(call.op).default, args, kwargs, test_utils=tests, raise_exception=False)
    return "".join(f"{name}: {said}" for name, said in checked.items() if said != "SUCCESS")


MODES: Mapping[str, Mode] = {
    "plain": plain,
    "by name": by_name,
    "overload": overload,
    "twice": twice,
    **{name: _within(context) for name, context in CONTEXTS.items()},
    "inference tensors": inference_tensors,
    **GRADIENTS,
    "vmap 0": _mapped(lambda draw, x: 0),
    "vmap -1": _mapped(lambda draw, x: -1),
    "vmap twice": mapped_twice,
    "vmap over nothing": mapped_over_nothing,
    "vmap mixed": _mapped(lambda draw, x: draw.any([None, 0, 0, -1])),
    "fake": fake,
    "meta": meta,
    "make_fx": _traced(lambda f, xs: make_fx(f)(*xs)),
    "make_fx symbolic": _traced(lambda f, xs: make_fx(f, tracing_mode="symbolic")(*xs)),
    "functionalize": _traced(lambda f, xs: torch.func.functionalize(f)),
    "jit trace": _traced(_jit_traced),
    "checkpoint": _traced(_checkpointed),
    "compile": _by(_compiled),
    "compile dynamic": _by(_compiled_dynamic),
    "export": _by(_exported),
    "opcheck": checked_by_torch,
    "functional call": functional_call,
    "fork": fork,
}

SIMPLE = ["plain", "by name", "overload", "no grad", "inference"]
"""What tensors of unusual kinds and calls that are refused are tried with."""
