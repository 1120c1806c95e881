"""Kinds of tensors that an argument may be, other than a plain one, and what ops do with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.masked import masked_tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map

from tests.probes.calls import Call, run
from tests.probes.draw import Draw
from tests.probes.judge import expect, result_of, same_bits, wrong
from tests.probes.rules import Refusal, refusals
from tests.probes.tensors import reach


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


class Function(torch.Tensor):
    """One whose __torch_function__ sees every call."""

    seen = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    """One that holds another tensor, and unwraps it in __torch_dispatch__."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(_unwrapped, (args, kwargs or {}))
        return tree_map(lambda x: Wrapper(x) if isinstance(x, torch.Tensor) else x, func(*args, **kwargs))


def _unwrapped(x: Any) -> Any:
    return x.inner if isinstance(x, Wrapper) else x


class Closed(Wrapper):
    """One that knows no op at all."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class Raising(Wrapper):
    """One that raises an error of its own."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError("the subclass says no")


class Emptied(Wrapper):
    """One that calls the op with itself, though it has no memory."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


class Unseen(torch.Tensor):
    """One without a __torch_function__."""

    __torch_function__ = torch._C._disabled_torch_function_impl


Kind = Callable[[Draw, Call, str], str]

BACKEND = r"Could not run 'kernelpack::[\w.]+' with arguments from the '\w+' backend|is not a strided tensor"
"""What torch says of tensors that no backend of the op has."""


def _converted(convert: Callable[[torch.Tensor], Any]) -> Kind:
    """Works as the tensor itself does."""

    def kind(draw: Draw, call: Call, name: str) -> str:
        return expect(call, lambda: run(call.given(**{name: convert(call.arguments[name])})))

    return kind


def _parameter(draw: Draw, call: Call, name: str) -> str:
    x = torch.nn.Parameter(call.arguments[name], requires_grad=False)
    return expect(call, lambda: run(call.given(**{name: x})))


def _plain(draw: Draw, call: Call, name: str) -> str:
    def right(got: Any) -> str:
        return wrong(call, got.as_subclass(torch.Tensor)) if type(got) is Plain else f"gave {type(got)}, expected Plain"

    return expect(call, lambda: run(call.given(**{name: call.arguments[name].as_subclass(Plain)})), right=right)


def _function(draw: Draw, call: Call, name: str) -> str:
    x = call.arguments[name].as_subclass(Function)
    before = Function.seen

    def right(got: Any) -> str:
        if Function.seen == before:
            return "__torch_function__ was not called"
        return wrong(call, got.as_subclass(torch.Tensor))

    return expect(call, lambda: run(call.given(**{name: x})), right=right)


def _wrapper(draw: Draw, call: Call, name: str) -> str:
    def right(got: Any) -> str:
        return wrong(call, got.inner) if isinstance(got, Wrapper) else f"gave {type(got)}, expected Wrapper"

    return expect(call, lambda: run(call.given(**{name: Wrapper(call.arguments[name])})), right=right)


def _refused(convert: Callable[[torch.Tensor], Any], said: str, *, named: bool = True) -> Kind:
    def kind(draw: Draw, call: Call, name: str) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x = convert(call.arguments[name])
        except (RuntimeError, TypeError, IndexError):  # torch has no such tensor of this dtype or shape
            draw.note("kind", "none of it")
            return _converted(lambda x: x)(draw, call, name)
        other = [refusal for refusal in refusals(call) if name not in refusal.said]
        return expect(call, lambda: run(call.given(**{name: x})), refused=[Refusal(said), *other], named=named)

    return kind


def _two(draw: Draw, call: Call, name: str) -> str:
    """torch's own subclass of two tensors, of which the second has other values."""
    x = call.arguments[name]
    start = x.storage_offset()
    other = torch.zeros(start + reach(x), dtype=x.dtype).as_strided(x.shape, x.stride(), start)

    def right(got: Any) -> str:
        if not isinstance(got, TwoTensor):
            return f"gave {type(got)}, expected TwoTensor"
        return wrong(call, got.a) or ("" if same_bits(got.b, run(call.given(**{name: other}))) else "the second result differs")

    return expect(call, lambda: run(call.given(**{name: TwoTensor(x, other)})), right=right)


def _functional(draw: Draw, call: Call, name: str) -> str:
    def right(got: Any) -> str:
        return wrong(call, torch._from_functional_tensor(got))

    return expect(call, lambda: run(call.given(**{name: torch._to_functional_tensor(call.arguments[name])})), right=right)


def _lazy_copy(draw: Draw, call: Call, name: str) -> str:
    """torch's copy of a tensor, which shares its memory until somebody writes to it."""
    x = call.arguments[name].clone()
    given = call.given(**{name: torch._lazy_clone(x)})
    return expect(given, lambda: run(given)) or ("" if same_bits(x, call.arguments[name]) else "a lazy copy's source changed")


def _empty(draw: Draw, call: Call, name: str) -> str:
    said = rf"{name} of shape .* has no memory: its storage was freed or never allocated"
    if call.arguments[name].numel() == 0:
        return _converted(lambda x: x)(draw, call, name)
    return _refused(Emptied, said)(draw, call, name)


def _unseen(draw: Draw, call: Call, name: str) -> str:
    def right(got: Any) -> str:
        return wrong(call, got) if type(got) is torch.Tensor else f"gave {type(got)}, expected torch.Tensor"

    return expect(call, lambda: run(call.given(**{name: call.arguments[name].as_subclass(Unseen)})), right=right)


def _negated(draw: Draw, call: Call, name: str) -> str:
    """The view of a tensor's negative: elements are negated when somebody reads them."""
    x = call.arguments[name]
    if not x.is_floating_point() or x.element_size() == 1:
        return _converted(lambda x: x)(draw, call, name)
    view = torch._neg_view(-x)
    resolved = call.given(**{name: view.clone()})
    return expect(resolved, lambda: run(call.given(**{name: view})))


def _imaginary(draw: Draw, call: Call, name: str) -> str:
    """The imaginary part of a conjugate: negated, and every second element of its memory."""
    x = call.arguments[name]
    if x.dtype not in (torch.float32, torch.float16):
        return _converted(lambda x: x)(draw, call, name)
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    resolved = call.given(**{name: view.clone()})
    return expect(resolved, lambda: run(call.given(**{name: view})))


def _zeros(draw: Draw, call: Call, name: str) -> str:
    """torch's tensor that has no memory and is zero, as autograd makes them."""
    x = call.arguments[name]
    zeros = call.given(**{name: torch.zeros((), dtype=x.dtype).expand(x.shape)})
    zeros.edge = "zeros"
    found = refusals(zeros)
    right = None if call.op in ("softmax", "gelu", "silu_mul", "rope") else (lambda got: "")
    return expect(
        zeros,
        lambda: run(call.given(**{name: torch._efficientzerotensor(x.shape, dtype=x.dtype)})),
        refused=found,
        right=right,
    )


def _fake(draw: Draw, call: Call, name: str) -> str:
    """A fake tensor beside real ones is refused; alone it gives a fake one."""
    with FakeTensorMode() as mode:
        x = mode.from_tensor(call.arguments[name])
    given = call.given(**{name: x})
    if len(call.tensors) > 1:
        said = r"convert all Tensors to FakeTensors first"
        others = [refusal for refusal in refusals(call) if not refusal.by_value]
        return expect(call, lambda: run(given), refused=[Refusal(said, types=(AssertionError,)), *others], named=False)
    refused = [refusal for refusal in refusals(call) if not refusal.by_value]
    return expect(call, lambda: run(given), refused=refused, right=lambda got: _shape(call, got))


def _meta(draw: Draw, call: Call, name: str) -> str:
    given = call.given(**{name: call.arguments[name].to("meta")})
    if len(call.tensors) > 1:
        return expect(call, lambda: run(given), refused=[Refusal(r" is on (meta|cpu).*to fix: "), *refusals(call)])
    refused = [refusal for refusal in refusals(given) if not refusal.by_value]
    return expect(call, lambda: run(given), refused=refused, right=lambda got: _shape(call, got))


def _shape(call: Call, got: torch.Tensor) -> str:
    found = (tuple(got.shape), got.dtype)
    return "" if found == result_of(call) else f"gave {found}, expected {result_of(call)}"


def _jagged(x: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2:
        raise TypeError("torch's own errors about jagged vectors fail")
    return torch.nested.nested_tensor([x, x], layout=torch.jagged)


KINDS: Mapping[str, Kind] = {
    "parameter": _parameter,
    "subclass": _plain,
    "torch function": _function,
    "wrapper": _wrapper,
    "closed wrapper": _refused(Closed, "all __torch_dispatch__ handlers returned NotImplemented"),
    "negated": _negated,
    "imaginary": _imaginary,
    "zero tensor": _zeros,
    "fake": _fake,
    "meta": _meta,
    "sparse": _refused(lambda x: x.to_sparse(), BACKEND),
    "sparse rows": _refused(lambda x: x.to_sparse_csr(), BACKEND),
    "mkldnn": _refused(lambda x: x.to_mkldnn(), BACKEND),
    "quantized": _refused(lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), BACKEND),
    "nested": _refused(lambda x: torch.nested.nested_tensor([x, x]), BACKEND),
    # torch takes any rms_norm of jagged tensors for its own
    "jagged": _refused(
        _jagged, r"kernelpack\.\w+\.default|Missing required argument 'normalized_shape'|^rms_norm\(\): ", named=False
    ),
    "masked": _refused(lambda x: masked_tensor(x, x == x), "all __torch_dispatch__ handlers returned NotImplemented"),
    "uninitialized": _refused(
        lambda x: torch.nn.UninitializedParameter(requires_grad=False), r"uninitialized parameter in kernelpack\.\w+"
    ),
    "raising wrapper": _refused(Raising, "the subclass says no", named=False),
    "emptied wrapper": _empty,
    "buffer": _converted(torch.nn.Buffer),
    "subclass unseen": _unseen,
    "two tensors": _two,
    "functional": _functional,
    "lazy copy": _lazy_copy,
}
