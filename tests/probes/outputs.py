"""What `out=` may be: a tensor that fits, wherever it lies, or one that is refused; nothing beside it is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from tests.probes.calls import Call, as_function, packet, run
from tests.probes.draw import Draw
from tests.probes.judge import bits, expect, result_of, same_bits
from tests.probes.kinds import BACKEND, Plain, Wrapper
from tests.probes.rules import Refusal, refusals
from tests.probes.tensors import Placed, Shape, Strides, dense, place, reach

Output = Callable[[Draw, Call], str]


def _write(call: Call, out: Any) -> Any:
    args, kwargs = call.spelled()
    return packet(call.op).out(*args, **kwargs, out=out)


def _fitting(call: Call) -> tuple[tuple[int, ...], torch.dtype, Strides]:
    """Returns what an output must be: of a call that is refused, contiguous."""
    if refusals(call):
        shape, dtype = result_of(call)
        return shape, dtype, torch.empty(shape, device="meta").stride()
    args, kwargs = call.spelled()
    result = packet(call.op)(*args, **kwargs)
    return tuple(result.shape), result.dtype, result.stride()


def _made(draw: Draw, call: Call, memory: str = "torch") -> Placed:
    shape, dtype, strides = _fitting(call)
    return place(draw, shape, dtype, strides=strides, memory=memory)


def _written(call: Call, made: Placed, out: torch.Tensor | None = None) -> str:
    """Writes to an output that fits; it gets the op's result, nothing around it changes, and nothing is returned."""
    outside = made.outside()
    out = made.tensor if out is None else out
    version = out._version if not out.is_inference() else 0

    def right(got: Any) -> str:
        args, kwargs = call.spelled()
        if got is not None:
            return f"returned {type(got)}"
        if not out.is_inference() and out._version != version + 1:
            return f"the version of out went from {version} to {out._version}"
        if not torch.equal(made.outside(), outside):
            return "memory around out was written to"
        return (
            "" if same_bits(out.as_subclass(torch.Tensor), packet(call.op)(*args, **kwargs)) else "out differs from the result"
        )

    return expect(call, lambda: _write(call, out), right=right)


def _in(memory: str) -> Output:
    return lambda draw, call: _written(call, _made(draw, call, memory))


def _refused(call: Call, out: Any, said: str, *, named: bool = True) -> str:
    """Refuses an output, and does not write to it."""
    before = bits(out) if isinstance(out, torch.Tensor) and not out.is_meta else None
    problem = expect(call, lambda: _write(call, out), refused=[Refusal(said), *refusals(call)], named=named)
    if not problem and before is not None and not torch.equal(bits(out), before):
        return "an output that was refused was written to"
    return problem


def _subclass(draw: Draw, call: Call) -> str:
    made = _made(draw, call)
    return _written(call, made, made.tensor.as_subclass(Plain))


def _in_inference(draw: Draw, call: Call) -> str:
    with torch.inference_mode():
        return _written(call, _made(draw, call))


def _outside_of_inference(draw: Draw, call: Call) -> str:
    with torch.inference_mode():
        out = _made(draw, call).tensor
    return _refused(call, out, "Inplace update to inference tensor", named=False)


def _leaf_without_grad(draw: Draw, call: Call) -> str:
    made = _made(draw, call)
    with torch.no_grad():
        return _written(call, made, made.tensor.requires_grad_())


def _leaf(draw: Draw, call: Call) -> str:
    return _refused(call, _made(draw, call).tensor.requires_grad_(), "out=.*requires grad")


def _asking_input(draw: Draw, call: Call) -> str:
    name = draw.any([name for name, x in call.tensors.items() if x.is_floating_point()])
    asking = call.given(**{name: call.arguments[name].detach().requires_grad_()})
    return _refused(asking, _made(draw, call).tensor, "out=.*requires grad")


def _shared(draw: Draw, call: Call, distance: Callable[[int, int], int]) -> tuple[str, Call, Placed] | None:
    """Returns an output and a call with an argument that lies in the same memory, contiguous, `distance(bytes of the argument, bytes of
    out)` before it; None where nothing fits."""
    shape, dtype, strides = _fitting(call)
    names = [name for name, x in call.tensors.items() if x.numel() and x.is_contiguous()]
    if not names or 0 in shape:
        return None
    name = draw.any(names)
    x = call.arguments[name]
    count = torch.Size(shape).numel()
    size = dtype.itemsize
    before = -(-distance(x.nbytes, count * size) // 16) * 16
    whole = torch.zeros(max(before + count * size, x.nbytes) + 16, dtype=torch.uint8)
    view = whole[: x.nbytes].view(x.dtype).view(x.shape).copy_(x)
    out = whole[before : before + count * size].view(dtype).as_strided(shape, strides)
    return name, call.given(**{name: view}), Placed(out, whole)


def _is_argument(draw: Draw, call: Call) -> str:
    return _overlapping(draw, call, lambda own, other: 0)


def _overlaps(draw: Draw, call: Call) -> str:
    return _overlapping(draw, call, lambda own, other: max(0, own - 16))


def _overlapping(draw: Draw, call: Call, distance: Callable[[int, int], int]) -> str:
    made = _shared(draw, call, distance)
    if made is None:
        return _in("torch")(draw, call)
    name, given, out = made
    if given.arguments[name].data_ptr() + given.arguments[name].nbytes <= out.tensor.data_ptr():  # rounded up after it
        return _written(given, out)
    return _refused(given, out.tensor, f"out lies in the memory of {name}.*to fix: pass another tensor as out")


def _beside(draw: Draw, call: Call) -> str:
    """The output begins where an argument ends."""
    made = _shared(draw, call, lambda own, other: own)
    if made is None:
        return _in("torch")(draw, call)
    _, given, out = made
    return _written(given, out)


def _laid(strides_of: Callable[[Shape, Strides], Strides]) -> Output:
    """Strides that are not the result's."""

    def output(draw: Draw, call: Call) -> str:
        shape, dtype, strides = _fitting(call)
        made = place(draw, shape, dtype, strides=strides_of(shape, strides))
        fits = 0 in shape or all(
            extent == 1 or a == b for extent, a, b in zip(shape, made.tensor.stride(), strides, strict=True)
        )
        return _written(call, made) if fits else _refused(call, made.tensor, r"out has strides .*, the result has")

    return output


def _wrong_shape(draw: Draw, call: Call) -> str:
    shape, dtype, _ = _fitting(call)
    axis = draw.number(0, len(shape) - 1)
    larger = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    return _refused(call, torch.zeros(draw.any([larger, (*shape, 1), (1, *shape), shape[1:]]), dtype=dtype), "out has shape")


def _wrong_dtype(draw: Draw, call: Call) -> str:
    shape, dtype, strides = _fitting(call)
    others = [torch.float64, torch.float32, torch.float16, torch.int16, torch.bool, torch.complex64]
    other = draw.any([other for other in others if other != dtype])
    return _refused(call, place(draw, shape, other, strides=strides).tensor, "out has dtype")


def _elsewhere(draw: Draw, call: Call) -> str:
    return _refused(call, _made(draw, call).tensor.to("meta"), r"out is on meta|is on cpu")


def _none(draw: Draw, call: Call) -> str:
    return _refused(call, None, r"out is None|'out'")


def _no_tensor(draw: Draw, call: Call) -> str:
    return _refused(call, draw.any([1, "out", [1.0], 2.0]), "for argument 'out'")


# -- outputs of other kinds --------------------------------------------------------------------------------------------------------

_NEGATED = r"negated when it is read.*to fix: call \.resolve_neg\(\)"


def _negated(draw: Draw, call: Call) -> str:
    """The view of an output's negative: torch has no way of its own to write to it."""
    return _refused(call, torch._neg_view(_made(draw, call).tensor), _NEGATED)


def _negated_argument(draw: Draw, call: Call) -> str:
    made = _made(draw, call)
    name = draw.any([name for name, x in call.tensors.items() if x.dtype != torch.bool])
    return _refused(call.given(**{name: torch._neg_view(call.arguments[name])}), made.tensor, _NEGATED)


def _wrapper(draw: Draw, call: Call) -> str:
    """A tensor that holds another one, which is written to."""
    made = _made(draw, call)
    problem = expect(call, lambda: _write(call, Wrapper(made.tensor)), right=lambda got: "")
    return problem or ("" if refusals(call) else _is_result(call, made.tensor))


def _is_result(call: Call, out: torch.Tensor) -> str:
    return "" if same_bits(out, run(call)) else "out differs from the result"


def _converted(convert: Callable[[torch.Tensor], Any], said: str, *, named: bool = True) -> Output:
    """An output that is refused, if torch has such a tensor of this dtype and shape."""

    def output(draw: Draw, call: Call) -> str:
        made = _made(draw, call)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = convert(made.tensor)
        except (RuntimeError, TypeError, IndexError):
            draw.note("output", "none of it")
            return _written(call, made)
        return expect(call, lambda: _write(call, out), refused=[Refusal(said), *refusals(call)], named=named)

    return output


def _freed(draw: Draw, call: Call) -> str:
    shape, dtype, strides = _fitting(call)
    out = torch.empty_strided(shape, strides, dtype=dtype)
    if out.numel() == 0:
        return _in("torch")(draw, call)
    out.untyped_storage().resize_(0)
    return expect(
        call, lambda: _write(call, out), refused=[Refusal(r"out of shape .* has no memory.*to fix: "), *refusals(call)]
    )


def _lazy_copy(draw: Draw, call: Call) -> str:
    """torch's copy of a tensor that shares its memory until somebody writes to it: to the copy alone."""
    shape, dtype, strides = _fitting(call)
    source = torch.zeros(shape, dtype=dtype).as_strided(shape, strides) if 0 not in shape else torch.zeros(shape, dtype=dtype)
    out = torch._lazy_clone(source)

    def right(got: Any) -> str:
        return _is_result(call, out) or ("" if not bits(source).any() else "what out is a lazy copy of was written to")

    return expect(call, lambda: _write(call, out), right=right)


def _of_fakes(draw: Draw, call: Call) -> str:
    """Fake outputs of fake calls: one that fits, or of another shape."""
    shape, dtype, strides = _fitting(call)
    fits = draw.chance(0.5)
    with FakeTensorMode() as mode:
        given = call.given(**{name: mode.from_tensor(x) for name, x in call.tensors.items()})
        out = torch.empty_strided(shape, strides, dtype=dtype) if fits else torch.empty((*shape, 3), dtype=dtype)
    refused = [refusal for refusal in refusals(call) if not refusal.by_value] + ([] if fits else [Refusal("out has shape")])
    return expect(call, lambda: _write(given, out), refused=refused, right=lambda got: "")


# -- outputs and autograd ----------------------------------------------------------------------------------------------------------

_ASKS = "out=.*requires grad|has no (forward-mode )?gradient"


def _tracked(draw: Draw, call: Call) -> str:
    """The result of something differentiable, or a view of a leaf."""
    shape, dtype, _ = _fitting(call)
    leaf = torch.zeros(shape, dtype=dtype).requires_grad_()
    return _refused(call, draw.any([leaf * 1, leaf[...], leaf.view(shape)]), _ASKS)


def _tangent(draw: Draw, call: Call) -> str:
    out = _made(draw, call).tensor
    with forward_ad.dual_level():
        return expect(
            call,
            lambda: _write(call, forward_ad.make_dual(out, torch.ones_like(out))),
            refused=[Refusal(_ASKS), *refusals(call)],
        )


def _inner(draw: Draw, call: Call) -> str:
    """A gradient, forward or backward, of a function that writes what it makes of its argument."""
    name = draw.any([name for name, x in call.tensors.items() if x.is_floating_point()])
    x = call.arguments[name]
    call = call.given(**{name: x.contiguous()}) if reach(x) < x.numel() else call
    x = call.arguments[name]
    shape, dtype, strides = _fitting(call)

    def function(t: torch.Tensor) -> torch.Tensor:
        out = torch.empty_strided(shape, strides, dtype=dtype)
        _write(call.given(**{name: t}), out)
        return out.float().sum()

    transform = draw.any([lambda: torch.func.grad(function)(x), lambda: torch.func.jvp(function, (x,), (torch.ones_like(x),))])
    return expect(call, transform, refused=[Refusal(_ASKS), *refusals(call)])


def _saved(draw: Draw, call: Call) -> str:
    """What a backward pass has saved, itself, a view of it or in no_grad: it notices."""
    made = _made(draw, call)
    leaf = torch.ones((), dtype=made.tensor.dtype, requires_grad=True)
    product = leaf * made.tensor
    out = draw.any([made.tensor, made.tensor[...], made.tensor.detach()])
    context = draw.any([torch.enable_grad, torch.no_grad, torch.inference_mode])

    def write() -> Any:
        with context():
            return _write(call, out)

    def right(got: Any) -> str:
        if made.tensor.numel() == 0:
            return ""
        noticed = [Refusal("modified by an inplace operation")]
        return expect(call, lambda: product.float().sum().backward(), refused=noticed, named=False)

    return expect(call, write, right=right)


# -- outputs under transformations and tracers -------------------------------------------------------------------------------------


def _mapped(draw: Draw, call: Call) -> str:
    shape, dtype, _ = _fitting(call)
    names = list(call.tensors)
    outs = torch.zeros((2, *shape), dtype=dtype)
    stacked = [torch.stack([x, x]) for x in call.tensors.values()]

    def function(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        _write(call.given(**dict(zip(names, tensors, strict=True))), out)
        return out

    places = draw.any([0, None])
    mapped = torch.func.vmap(function, (places, *[0] * len(names)))
    refused = [Refusal(r"the fallback path doesn't work on out= or view ops"), *refusals(call)]
    return expect(call, lambda: mapped(outs if places == 0 else outs[0], *stacked), refused=refused)


def _functionalized(draw: Draw, call: Call) -> str:
    shape, dtype, _ = _fitting(call)
    names = list(call.tensors)

    def function(*tensors: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(shape, dtype=dtype)
        _write(call.given(**dict(zip(names, tensors, strict=True))), out)
        return out

    refused = [
        Refusal("We only support functionalizing operators whose outputs do not have alias annotations"),
        *refusals(call),
    ]
    return expect(call, lambda: torch.func.functionalize(function)(*call.tensors.values()), refused=refused)


def _traced(trace: Callable[[Callable[..., Any], list[torch.Tensor]], Callable[..., Any]]) -> Output:
    """A traced function that writes to an output of its own, and to one that it is given."""

    def output(draw: Draw, call: Call) -> str:
        made = _made(draw, call)
        write, arguments = as_function(call, "out")

        def function(out: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
            own = torch.empty_like(out)
            write(*tensors, out=own)
            write(*tensors, out=out)
            return own

        def right(own: Any) -> str:
            return _is_result(call, own) or _is_result(call, made.tensor)

        tensors = [made.tensor, *arguments]
        refused = [Refusal(refusal.said.replace(r"\n", r"(\n|\\n)"), types=(Exception,)) for refusal in refusals(call)]
        return expect(call, lambda: trace(function, tensors)(*tensors), refused=refused, right=right)

    return output


def _compiled(function: Callable[..., Any], tensors: list[torch.Tensor]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


OUTPUTS: Mapping[str, Output] = {
    "in torch's memory": _in("torch"),
    "at an odd offset": _in("odd offset"),
    "at an unaligned address": _in("unaligned"),
    "in shared memory": _in("shared"),
    "in numpy's memory": _in("numpy"),
    "beside an argument": _beside,
    "a subclass": _subclass,
    "in inference mode": _in_inference,
    "a leaf, no grad": _leaf_without_grad,
    "an argument": _is_argument,
    "overlaps an argument": _overlaps,
    "an inference tensor": _outside_of_inference,
    "a leaf": _leaf,
    "an argument asks": _asking_input,
    "with gaps": _laid(lambda shape, strides: tuple(2 * step for step in strides)),
    "repeated": _laid(lambda shape, strides: (0, *strides[1:])),
    "reversed": _laid(lambda shape, strides: dense(shape, tuple(reversed(range(len(shape)))))),
    "wrong shape": _wrong_shape,
    "wrong dtype": _wrong_dtype,
    "elsewhere": _elsewhere,
    "negated": _negated,
    "an argument is negated": _negated_argument,
    "a wrapper": _wrapper,
    "zeros without memory": _converted(
        lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype), "ZeroTensors are immutable", named=False
    ),
    "sparse": _converted(lambda x: x.to_sparse(), BACKEND),
    "mkldnn": _converted(lambda x: x.contiguous().to_mkldnn(), BACKEND),
    "quantized": _converted(lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), BACKEND),
    "freed": _freed,
    "a lazy copy": _lazy_copy,
    "fake": _of_fakes,
    "tracked": _tracked,
    "a tangent": _tangent,
    "within a gradient": _inner,
    "saved": _saved,
    "vmap": _mapped,
    "functionalize": _functionalized,
    "make_fx": _traced(lambda f, xs: make_fx(f)(*xs)),
    "compile": _traced(_compiled),
    "None": _none,
    "no tensor": _no_tensor,
}
