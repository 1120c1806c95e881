"""What host functions call, as Python: in development on real tensors, in fake kernels on symbolic ones.

This file is also copied into every built op package, so it imports torch only when used, and nothing of kernelpack.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_OP: contextvars.ContextVar[str] = contextvars.ContextVar("kernelpack_op", default="")


@contextmanager
def running(op: str) -> Iterator[None]:
    """Names the op in the errors of what runs inside."""
    token = _OP.set(op)
    try:
        yield
    finally:
        _OP.reset(token)


def error(message: str) -> RuntimeError:
    """Returns the error of the running op, as the C++ op would raise it."""
    op = _OP.get()
    return RuntimeError(f"{op}: {message}" if op else message)


def check(condition: Any, message: str | Callable[[], str] = "a check of the host function failed") -> None:
    """Raises RuntimeError with the op's name and `message` unless `condition`.

    In a fake kernel the condition may be symbolic: it then becomes a fact that torch records and checks, no specialisation.
    """
    if condition is True:
        return
    import torch

    text = message if callable(message) else (lambda: message)
    if isinstance(condition, torch.SymBool):
        record: Any = torch._check
        record(condition, lambda: str(error(text())))
    elif not condition:
        raise error(text())


def both(left: Any, right: Callable[[], Any]) -> Any:
    """Returns `left and right()` without asking a symbolic condition for its value."""
    return left if left is False else right() if left is True else left & right()


def either(left: Any, right: Callable[[], Any]) -> Any:
    """Returns `left or right()` without asking a symbolic condition for its value."""
    return left if left is True else right() if left is False else left | right()


def cdiv(a: Any, b: Any) -> Any:
    """Returns a / b rounded up."""
    return -(-a // b)


def next_power_of_2(n: Any) -> int:
    """Returns the smallest power of two that is at least n; 1 for n <= 1."""
    return 1 << max(0, int(n) - 1).bit_length()


def num_threads() -> int:
    """Returns how many threads torch gives to work on the CPU: `torch.get_num_threads()`."""
    import torch

    return torch.get_num_threads()


def product(values: Sequence[Any]) -> Any:
    """Returns the product of integers, 1 for none."""
    result: Any = 1
    for value in values:
        result = result * value
    return result


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Whether two shapes are equal: a bool, or a symbolic bool."""
    if len(a) != len(b):
        return False
    result: Any = True
    for x, y in zip(a, b, strict=True):
        result = (x == y) & result
    return result


def strides_like(x: Any, shape: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the strides of a dense tensor of `shape` whose dimensions lie in memory in the order of x's, the last one innermost.

    A dimension that x repeats (stride 0) lies outside of those to its right. With x's own shape that is how torch.empty_like lays
    out tensors whose last dimension is contiguous. Raises RuntimeError if x has another number of dimensions.
    """
    if x.dim() != len(shape):
        raise error(f"a tensor of shape {tuple(x.shape)} has not as many dimensions as {tuple(shape)}")
    order: list[int] = []  # innermost first
    steps: list[Any] = []
    for index in reversed(range(len(shape))):
        step = (x.stride(index) or steps[-1]) if order else 0
        place = len(order)
        while place > 0 and steps[place - 1] > step:
            place -= 1
        order.insert(place, index)
        steps.insert(place, step)
    return _dense_strides(shape, order)


def _dense_strides(shape: Sequence[Any], order: Iterable[int]) -> tuple[Any, ...]:
    """`order` is that of the dimensions, innermost first."""
    strides: list[Any] = [0] * len(shape)
    step: Any = 1
    for index in order:
        strides[index] = step
        step = step * _at_least_one(shape[index])
    return tuple(strides)


def _at_least_one(extent: Any) -> Any:
    if isinstance(extent, int):
        return max(extent, 1)
    import torch

    largest: Any = torch.sym_max
    return largest(extent, 1)


def empty(shape: Sequence[Any], dtype: Any, device: Any) -> Any:
    """Returns an uninitialised contiguous tensor."""
    import torch

    return torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=device)


def empty_like(x: Any, shape: Sequence[Any] | None = None, dtype: Any = None) -> Any:
    """Returns an uninitialised contiguous tensor on x's device, with x's shape and dtype where none is given."""
    return empty(x.shape if shape is None else shape, x.dtype if dtype is None else dtype, x.device)


def empty_strided(shape: Sequence[Any], strides: Sequence[Any], dtype: Any, device: Any) -> Any:
    """Returns an uninitialised tensor with the given strides."""
    import torch

    return torch.empty_strided(tuple(shape), tuple(strides), dtype=torch_dtype(dtype), device=device)


def torch_dtype(dtype: Any) -> Any:
    """Returns torch's dtype for one of torch or of the language."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "int1": "bool"}
    names |= {"fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
    return getattr(torch, names.get(dtype.name, dtype.name))


def broadcast_strides(x: Any, shape: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the strides with which x is read as if it had `shape`: 0 where x has size 1 or no such dimension.

    Dimensions align at the last one, as in torch; None gives zeros. Raises RuntimeError if x does not broadcast to the shape.
    """
    if x is None:
        return (0,) * len(shape)
    missing = len(shape) - x.dim()
    sizes = tuple(x.shape)
    if missing < 0:
        raise error(f"a tensor of shape {sizes} does not broadcast to {tuple(shape)}")
    strides: list[Any] = [0] * missing
    for index, extent in enumerate(sizes):
        if extent == shape[missing + index]:
            strides.append(0 if extent == 1 else x.stride(index))
        elif extent == 1:
            strides.append(0)
        else:
            raise error(f"a tensor of shape {sizes} does not broadcast to {tuple(shape)}")
    return tuple(strides)


def broadcast_shapes(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the shape to which two shapes broadcast, as torch.broadcast_shapes does. Raises RuntimeError where there is none."""
    shape: list[Any] = []
    count = max(len(a), len(b))
    for x, y in zip((*(1,) * (count - len(a)), *a), (*(1,) * (count - len(b)), *b), strict=True):
        if not (isinstance(x, int) and x == 1) and not (isinstance(y, int) and y == 1):
            said = f"dimensions {tuple(a)} and {tuple(b)} do not broadcast: {x} is not {y}"
            check(x == y, f"{said}\n  to fix: give both tensors the same dimensions, or 1")
        shape.append(y if isinstance(x, int) and x == 1 else x)
    return tuple(shape)


def collapse_rows(*tensors: Any, ndims: int) -> tuple[tuple[Any, ...], ...]:
    """Merges all dimensions but the last of equally shaped tensors into `ndims` dimensions that strides can walk.

    Returns the sizes, then each tensor's strides, outermost first and filled up in front with size 1 and stride 0. Two
    neighbouring dimensions merge if they do in every tensor. Raises RuntimeError if more than `ndims` remain.
    """
    first = tensors[0]
    lead = first.dim() - 1
    if lead < 0:
        raise error("a tensor without dimensions has no rows")
    for x in tensors[1:]:
        if tuple(x.shape[:lead]) != tuple(first.shape[:lead]) or x.dim() != first.dim():
            raise error(f"tensors of shape {tuple(first.shape)} and {tuple(x.shape)} do not have the same rows")
    return _collapsed("rows", tensors, first.shape[:lead], [x.stride()[:lead] for x in tensors], ndims)


def collapse_batches(*tensors: Any, ndims: int) -> tuple[tuple[Any, ...], ...]:
    """Merges all dimensions but the last two of tensors that broadcast to each other; see collapse_rows.

    A stride is 0 where a tensor repeats. Raises RuntimeError for dimensions that do not broadcast, and if more than `ndims` remain.
    """
    shape: tuple[Any, ...] = ()
    for x in tensors:
        shape = broadcast_shapes(shape, x.shape[:-2])
    strides = []
    for x in tensors:
        own = [0 if extent == 1 else step for extent, step in zip(x.shape[:-2], x.stride(), strict=False)]
        strides.append([0] * (len(shape) - len(own)) + own)
    return _collapsed("batches", tensors, shape, strides, ndims)


def _collapsed(
    what: str, tensors: Sequence[Any], shape: Sequence[Any], steps: Sequence[Sequence[Any]], ndims: int
) -> tuple[tuple[Any, ...], ...]:
    """Merges dimensions of a shape that each tensor walks by its strides, `steps`."""
    sizes: list[Any] = []
    strides: list[list[Any]] = [[] for _ in tensors]
    for extent, *step in zip(shape, *steps, strict=True):
        if extent == 1:
            continue
        if sizes and all(previous[-1] == extent * own for previous, own in zip(strides, step, strict=True)):
            sizes[-1] = sizes[-1] * extent
            for previous, own in zip(strides, step, strict=True):
                previous[-1] = own
        else:
            sizes.append(extent)
            for previous, own in zip(strides, step, strict=True):
                previous.append(own)
    if 0 in sizes:
        sizes, strides = [0], [[0] for _ in tensors]
    if len(sizes) > ndims:
        cure = (
            ".contiguous() on the tensor"
            if len(tensors) == 1
            else ".expand(...) on the one that repeats, and .contiguous() on all"
        )
        layouts = " and ".join(f"{tuple(x.shape)} with strides {tuple(x.stride())}" for x in tensors)
        raise error(
            f"the {what} of {layouts} need more than {ndims} stride{'' if ndims == 1 else 's'}, which is what the kernel takes"
            f"\n  to fix: call {cure} before the op"
        )
    fill = ndims - len(sizes)
    return ((1,) * fill + tuple(sizes), *((0,) * fill + tuple(own) for own in strides))


def check_dtype(name: str, x: Any, dtypes: Sequence[Any]) -> None:
    """Raises RuntimeError unless a tensor has one of the dtypes; None among them stands for an absent tensor."""
    found = None if x is None else x.dtype
    if found not in dtypes:
        built = ", ".join(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise error(f"{name} has dtype {found}, expected {built}\n  to fix: convert it with {name}.to(...)")


def with_signs(name: str, x: Any, writes: bool) -> Any:
    """Returns a tensor whose memory holds what it reads as: a negated view (`x.is_neg()`) is copied. Raises RuntimeError for one in the
    call of an op that writes to an argument, whose copy would be lost."""
    if not getattr(x, "is_neg", bool)():
        return x
    if writes:
        raise error(
            f"it writes to a tensor, and {name} is negated when it is read, as .is_neg() says\n  to fix: call .resolve_neg() on it before the op"
        )
    return x.resolve_neg()


def check_same_device(**tensors: Any) -> None:
    """Raises RuntimeError unless all tensors that are there are on one device."""
    present = {name: x for name, x in tensors.items() if x is not None}
    first = next(iter(present), "")
    for name, x in present.items():
        if x.device != present[first].device:
            raise error(
                f"{name} is on {x.device}, {first} is on {present[first].device}\n  to fix: move all tensors to one device"
            )


def check_output(name: str, x: Any, expected: Any) -> None:
    """Raises RuntimeError unless a tensor given as result has the result's shape, dtype and device."""
    if x.dtype != expected.dtype:
        raise error(f"{name} has dtype {x.dtype}, the result has {expected.dtype}")
    if x.device != expected.device:
        raise error(f"{name} is on {x.device}, the result is on {expected.device}")
    message = f"{name} has shape {tuple(x.shape)}, the result has {tuple(expected.shape)}"
    check(len(x.shape) == len(expected.shape), message)
    for a, b in zip(x.shape, expected.shape, strict=True):
        check(a == b, message)
