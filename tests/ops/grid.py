"""The accuracy grid: seeded cases for every op, and what counts as accurate. `python -m tests.ops.grid` runs it and says what failed."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.ops import extremes, fused_cases, quantized_cases
from tests.ops.arguments import Arguments, Typed
from tests.ops.functional import functional, module_of, results_of
from tests.ops.layouts import (
    ROWS,
    bits,
    contiguous,
    convert,
    layout_name,
    padded,
    repeated,
    reversed_rows,
    steps_apart,
    swapped,
    times,
)

OPS = (
    "gelu", "layer_norm", "matmul", "mha", "rms_norm", "rope", "scaled_matmul", "silu_mul", "softmax", *fused_cases.CASES,
    *quantized_cases.CASES,
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A call of an op. `make` gives its arguments in float32 (at the edge of what a dtype holds: float64); tensors of floats that are
    not Typed are converted to `dtype`. Where torch `overflows`, its results are no measure."""

    op: str
    name: str
    dtype: torch.dtype
    make: Callable[[], Arguments]
    edge: bool = False
    overflows: bool = False

    def __str__(self) -> str:
        return f"{self.op} {str(self.dtype).removeprefix('torch.')} {self.name}"

    def arguments(self, device: str = "cpu") -> Arguments:
        torch.manual_seed(zlib.crc32(str(self).encode()))  # the same whatever other cases there are
        args, kwargs = self.make()
        return tuple(self._place(value, device) for value in args), {k: self._place(v, device) for k, v in kwargs.items()}

    @property
    def result(self) -> torch.dtype:
        """The dtype of the op's result."""
        name = module_of(self.op).RANGES.get("result", (None,))[0]
        return self.dtype if name is None else getattr(torch, name)

    def _place(self, value: Any, device: str) -> Any:
        if isinstance(value, Typed):
            return convert(value.tensor, value.tensor.dtype, device)
        return convert(value, self.dtype, device) if isinstance(value, torch.Tensor) else value


# -- cases, by op; what they cover follows the op's RANGES ---------------------------------------------------------------------


def softmax_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    for make, shape in ROWS:
        yield layout_name(make, shape), lambda make=make, shape=shape: ((make(*shape),), {})
        if shape[-1] in (64, 65, 1000):
            yield (
                f"{layout_name(make, shape)} wide",
                lambda make=make, shape=shape: ((times(make(*shape), 30),), {"dim": len(shape) - 1}),
            )

    def masked() -> Arguments:
        x = torch.randn(4, 77)
        x[:, 30:] = -float("inf")
        return (x,), {}

    yield "-inf", masked


def rms_norm_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    for index, (make, shape) in enumerate(ROWS):
        yield layout_name(make, shape), lambda make=make, shape=shape: ((make(*shape), torch.randn(shape[-1])), {"eps": 1e-6})
        if index % 3 == 0:
            yield f"{layout_name(make, shape)} plain", lambda make=make, shape=shape: ((make(*shape),), {})
        if index % 5 == 0:
            yield (
                f"{layout_name(make, shape)} small",
                lambda make=make, shape=shape: ((times(make(*shape), 1e-3), None, 1e-5), {}),
            )


def layer_norm_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    for index, (make, shape) in enumerate(ROWS):
        n = shape[-1]
        yield (
            layout_name(make, shape),
            lambda make=make, shape=shape, n=n: ((make(*shape), torch.randn(n), torch.randn(n)), {"eps": 1e-6}),
        )
        if index % 3 == 0:
            yield f"{layout_name(make, shape)} plain", lambda make=make, shape=shape: ((make(*shape),), {})
        if index % 4 == 0:
            yield (
                f"{layout_name(make, shape)} bias",
                lambda make=make, shape=shape, n=n: ((make(*shape), None, torch.randn(n)), {}),
            )
        if index % 4 == 1:
            yield (
                f"{layout_name(make, shape)} far",
                lambda make=make, shape=shape, n=n: ((make(*shape) + 20, torch.randn(n)), {}),
            )


def gelu_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    for make, shape in ROWS:
        for approximate in (0, 1):
            yield (
                f"{layout_name(make, shape)} {approximate}",
                lambda make=make, shape=shape, a=approximate: ((times(make(*shape), 3),), {"approximate": a}),
            )
    for approximate in (0, 1):
        yield f"small {approximate}", lambda a=approximate: ((torch.randn(1000) * 1e-2,), {"approximate": a})
        yield f"line {approximate}", lambda a=approximate: ((torch.linspace(-20, 20, 10001),), {"approximate": a})


def silu_mul_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    for make, shape in ROWS:
        yield layout_name(make, shape), lambda make=make, shape=shape: ((times(make(*shape), 3), contiguous(*shape)), {})
        yield f"{layout_name(make, shape)} both", lambda make=make, shape=shape: ((contiguous(*shape), make(*shape)), {})

    def halves() -> Arguments:
        gate, up = torch.randn(9, 2 * 70).chunk(2, dim=-1)
        return (gate, up), {}

    yield "halves of one tensor", halves


def rope_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    shapes = [
        (2, 3, 5, 64),
        (1, 4, 17, 128),
        (2, 2, 3, 10),
        (1, 1, 1, 2),
        (1, 2, 300, 96),
        (0, 2, 3, 8),
        (2, 2, 0, 8),
        (3, 2, 7, 7),
    ]
    for shape in shapes:
        size = shape[-1]
        for make in (contiguous, swapped, padded):
            for interleaved in (False, True):
                pairs = size // 2 if make is not padded else max(1, size // 4)

                def turned(
                    make: Any = make, shape: Any = shape, interleaved: bool = interleaved, pairs: int = pairs
                ) -> Arguments:
                    angles = torch.rand(shape[2], pairs) * 6
                    return (make(*shape), angles.cos(), angles.sin()), {"interleaved": interleaved}

                yield f"{layout_name(make, shape)} {pairs} {interleaved}", turned

    def by_batch() -> Arguments:
        angles = torch.rand(2, 1, 9, 16) * 6
        return (swapped(2, 3, 9, 32), angles.cos(), angles.sin()), {}

    yield "angles by batch", by_batch


def attention(
    query: tuple[int, ...],
    kv: tuple[int, int],
    mask: Callable[[int, int, int, int], torch.Tensor] | None = None,
    make: Callable[..., torch.Tensor] = contiguous,
    value_size: int | None = None,
    **kwargs: Any,
) -> Callable[[], Arguments]:
    """A call of mha: `query` is its shape, `kv` are the key heads and the number of keys, `mask` takes batches, heads, queries, keys."""

    def arguments() -> Arguments:
        batch = query[:-3]
        kv_heads, length = kv
        k = make(*batch, kv_heads, length, query[-1])
        v = make(*batch, kv_heads, length, value_size or query[-1])
        b = batch[0] if batch else 1
        attn_mask = None if mask is None else mask(b, query[-3], query[-2], length)
        return (make(*query), k, v, attn_mask), kwargs

    return arguments


def _bools(*shape: int) -> torch.Tensor:
    kept = torch.rand(shape) > 0.4
    kept[..., :1] = True
    return kept


MASKS: dict[str, Callable[[int, int, int, int], torch.Tensor]] = {
    "bool": lambda b, h, m, n: _bools(b, h, m, n),
    "bool row": lambda b, h, m, n: _bools(1, 1, 1, n),
    "padding": lambda b, h, m, n: (torch.arange(n) < torch.randint(1, n + 1, (b,))[:, None])[:, None, None, :],
    "float": lambda b, h, m, n: torch.randn(m, n),
    "float by head": lambda b, h, m, n: torch.randn(1, h, m, n),
    "float column": lambda b, h, m, n: torch.randn(b, 1, m, 1),
    "float transposed": lambda b, h, m, n: torch.randn(n, m).t(),
    "some rows masked": lambda b, h, m, n: (torch.arange(m) % 2 == 0)[:, None].expand(m, n),
    "all masked": lambda b, h, m, n: torch.zeros(m, n, dtype=torch.bool),
    "-inf rows": lambda b, h, m, n: torch.where(torch.arange(m)[:, None] % 3 == 0, -float("inf"), torch.randn(m, n)),
}


def mha_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    for size in (1, 2, 8, 24, 32, 40, 64, 80, 96, 100, 128, 160, 192, 200, 255, 256):
        yield f"head size {size}", attention((1, 2, 33, size), (2, 37))
    for m, n in ((1, 1), (1, 100), (7, 300), (64, 64), (65, 63), (128, 200), (200, 128), (3, 1), (129, 257)):
        yield f"{m} queries {n} keys", attention((2, 2, m, 64), (2, n))
        yield f"{m} queries {n} keys causal", attention((2, 2, m, 64), (2, n), is_causal=True)
    yield "3100 queries 90 keys causal", attention((1, 1, 3100, 64), (1, 90), is_causal=True)
    for name, mask in MASKS.items():
        for m, n in ((5, 9), (70, 131)):
            yield f"mask {name} {m} {n}", attention((2, 3, m, 48), (3, n), mask)
        yield f"decode, mask {name}", attention((2, 3, 1, 48), (3, 300), mask)
        yield f"decode, mask {name}, two queries of two heads", attention((2, 4, 2, 130), (2, 700), mask, enable_gqa=True)
    for heads, kv_heads in ((4, 1), (6, 2), (8, 8)):
        yield f"gqa {heads}/{kv_heads}", attention((2, heads, 19, 64), (kv_heads, 45), enable_gqa=True)
        yield (
            f"gqa {heads}/{kv_heads} mask",
            attention((2, heads, 70, 32), (kv_heads, 45), MASKS["float by head"], enable_gqa=True),
        )
    for make in (swapped, padded, reversed_rows):
        yield f"{make.__name__}", attention((2, 3, 21, 40), (3, 50), make=make)
        yield f"{make.__name__} causal", attention((2, 3, 81, 72), (3, 81), make=make, is_causal=True)
    for heads, kv_heads, m, n, size in ((8, 2, 1, 256, 64), (4, 4, 1, 1000, 80), (12, 3, 3, 515, 128), (16, 1, 1, 300, 200)):
        yield f"decode {m} by {n} {heads}/{kv_heads} {size}", attention((2, heads, m, size), (kv_heads, n), enable_gqa=True)
    yield "decode, many heads", attention((2, 64, 1, 64), (64, 300))
    yield "decode, one batch of many keys", attention((1, 2, 1, 64), (2, 4100), make=padded)
    yield "decode, value size differs", attention((1, 2, 1, 32), (2, 700), value_size=150)
    yield "value size differs", attention((1, 2, 17, 32), (2, 31), value_size=80)
    yield "scale", attention((1, 2, 17, 32), (2, 31), scale=0.3)
    yield "scale 0", attention((1, 2, 17, 32), (2, 31), scale=0.0)
    yield "without batch", attention((3, 17, 32), (3, 31))
    yield "no batch at all", attention((0, 2, 17, 32), (2, 31))
    yield "no queries", attention((2, 2, 0, 32), (2, 31))


def matmul_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    def call(
        a: tuple[int, ...],
        columns: int,
        *,
        make: Callable[..., torch.Tensor] = contiguous,
        weight: str = "plain",
        bias: bool = False,
        activation: int = 0,
    ) -> Callable[[], Arguments]:
        def arguments() -> Arguments:
            k = a[-1]
            b = {
                "plain": lambda: torch.randn(k, columns),
                "transposed": lambda: torch.randn(columns, k).t(),
                "padded": lambda: padded(k, columns),
                "batched": lambda: torch.randn(a[0], k, columns),
            }[weight]()
            b = times(b, k**-0.5)
            return ((make(*a), b, torch.randn(columns)) if bias else (make(*a), b)), {"activation": activation}

        return arguments

    for m, n, k in (
        (1, 1, 1), (2, 3, 5), (1, 300, 70), (17, 33, 65), (64, 64, 64), (65, 127, 33), (100, 100, 100), (128, 256, 96),
        (33, 17, 513), (5, 7, 1000), (200, 72, 40), (1, 64, 1024), (70, 1, 19), (129, 130, 131), (24, 72, 136),
        (3, 70, 600), (12, 64, 512), (33, 128, 300), (300, 1, 4096), (80, 8464, 80),
    ):  # fmt: skip
        yield f"{m}x{n}x{k}", call((m, k), n)
        yield f"{m}x{n}x{k} transposed, bias", call((m, k), n, weight="transposed", bias=True)
    for activation in module_of("matmul").RANGES["activation"]:
        yield f"activation {activation}", call((37, 50), 70, bias=True, activation=activation)
    yield "leading dimensions", call((2, 3, 9, 48), 20)
    yield "padded", call((9, 48), 20, make=padded, weight="padded")
    yield "swapped", call((4, 9, 48), 20, make=swapped)
    yield "batched", call((4, 9, 48), 20, weight="batched")
    yield "repeated", call((4, 9, 48), 20, make=repeated)
    yield "no rows", call((0, 48), 20)

    def batches(a: tuple[int, ...], b: tuple[int, ...], columns: int) -> Callable[[], Arguments]:
        return lambda: ((torch.randn(*a, 40, 48), times(torch.randn(*b, 48, columns), 48**-0.5)), {})

    for a, b in (((2, 1), (2, 3)), ((2, 3), (1, 3)), ((3,), (2, 3)), ((2, 1), (3,)), ((2, 1), (1, 3))):
        for columns in (1, 32):
            yield f"batches {a} times {b}, {columns} columns", batches(a, b, columns)
    yield "heads of one projection", lambda: ((swapped(2, 3, 40, 48), times(swapped(2, 3, 40, 48), 48**-0.5).mT), {})


def scaled_matmul_cases() -> Iterator[tuple[str, Callable[[], Arguments]]]:
    def call(
        m: int,
        n: int,
        k: int,
        *,
        make: Callable[..., torch.Tensor] = contiguous,
        by_row: bool = False,
        bias: bool = False,
        size: float = 1.0,
    ) -> Callable[[], Arguments]:
        def arguments() -> Arguments:
            a, weight = times(make(m, k), size), convert(make(n, k), torch.float8_e4m3fn)
            scales = (torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5) if by_row else (torch.tensor(0.3), torch.tensor([2.0]))
            added = Typed(torch.randn(n).bfloat16()) if bias else None
            return (a, Typed(weight.t()), *map(Typed, scales), added), {}

        return arguments

    for m, n, k in (
        (1, 1, 1), (2, 3, 5), (1, 300, 70), (17, 33, 65), (64, 64, 64), (65, 127, 33), (128, 256, 96), (33, 17, 513),
        (5, 7, 1000), (200, 272, 48), (1, 64, 1024), (70, 1, 19), (129, 130, 131), (144, 80, 720), (16, 16, 4096),
    ):  # fmt: skip
        yield f"{m}x{n}x{k}", call(m, n, k)
        yield f"{m}x{n}x{k} by row", call(m, n, k, by_row=True)
        yield f"{m}x{n}x{k} by row, bias", call(m, n, k, by_row=True, bias=True)
    yield "bias", call(37, 70, 50, bias=True)
    yield "padded", call(9, 20, 48, make=padded, by_row=True)
    yield "large", call(40, 48, 160, size=100.0)
    yield "small", call(40, 48, 160, size=0.01, by_row=True)
    yield "no rows", call(0, 20, 48, by_row=True)


MAKERS: dict[str, Callable[[], Iterator[tuple[str, Callable[[], Arguments]]]]] = {
    "gelu": gelu_cases,
    "layer_norm": layer_norm_cases,
    "matmul": matmul_cases,
    "mha": mha_cases,
    "rms_norm": rms_norm_cases,
    "rope": rope_cases,
    "scaled_matmul": scaled_matmul_cases,
    "silu_mul": silu_mul_cases,
    "softmax": softmax_cases,
    **fused_cases.CASES,
    **quantized_cases.CASES,
}
"""By op, what yields the names of its cases and their arguments."""


def cases() -> list[Case]:
    """Returns the whole grid: every op's cases in every dtype that its RANGES name."""
    made: list[Case] = []
    dtypes = {op: [getattr(torch, name) for name in module_of(op).RANGES["dtypes"]] for op in OPS}
    for op in OPS:
        for dtype in dtypes[op]:
            for name, make in MAKERS[op]():
                made.append(Case(op, name, dtype, make))
    edges = {**extremes.CALLS, **fused_cases.EDGES, **quantized_cases.EDGES}
    for op in OPS:
        for dtype in dtypes[op]:
            for name, make in edges[op](dtype):
                overflows = extremes.may_overflow(op, dtype, name)
                made.append(Case(op, f"edge: {name}", dtype, make, edge=True, overflows=overflows))
    return made


# -- what is accurate ----------------------------------------------------------------------------------------------------------


def _errors(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Returns absolute errors; infinite where one is NaN or infinite and the other is not that."""
    got = got.double()
    same = (got == exact) | (got.isnan() & exact.isnan())
    return torch.where(same, 0.0, (got - exact).abs()).nan_to_num(nan=float("inf"), posinf=float("inf"))


def _error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float(_errors(got, exact).max()) if got.numel() else 0.0


def check(case: Case, device: str = "cpu", run: Callable[..., Any] | None = None, times: float = 2) -> str:
    """Returns what is wrong with an op's result for a case, or "". `run(*args, **kwargs)` is the built op, if none is given.

    Its largest error may be `times` that of torch's own op in the same dtype. torch's may be exact by luck, in small tensors,
    where any correctly rounded result is off by half a unit in the last place: so much, of the largest element, is always
    allowed. float32 gets two units, because its sums round as often as they add, while those of shorter types happen in
    float32.
    """
    args, kwargs = case.arguments(device)
    got = functional(case.op, run)(*args, **kwargs)
    return problem(case, args, kwargs, got, device, times)


def problem(
    case: Case,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    got: torch.Tensor | tuple[torch.Tensor, ...],
    device: str = "cpu",
    times: float = 2,
    strict: bool = True,
) -> str:
    """Returns what is wrong with the results of a case's op for these arguments, or ""; see `check`. `strict`: a case at the edge must
    say that torch overflows; otherwise the op must be right where torch is not."""
    module = module_of(case.op)
    with torch.no_grad():
        # some of torch's kernels for GPUs refuse strides that ours take
        plain = [x.contiguous() if isinstance(x, torch.Tensor) and device != "cpu" else x for x in args]
        own = other = module.reference(*plain, **kwargs)
        if case.op == "mha":  # large scores lose bits, and one way to sum them is by luck more exact than the other
            with sdpa_kernel(SDPBackend.MATH):
                other = module.reference(*plain, **kwargs)
        wide = [convert(x, torch.float64, device) if isinstance(x, torch.Tensor) else x for x in args]
        with sdpa_kernel(SDPBackend.MATH):  # others give 0 where all scores are NaN
            exact = module.reference(*wide, **kwargs)
        if own is None:  # torch 2.11 does so on GPUs for empty inputs of its attention
            own = other = exact
    ours, torchs, others, exacts = results_of(got), results_of(own), results_of(other), results_of(exact)
    if len(ours) != len(exacts):
        return f"{case}: {len(ours)} results, expected {len(exacts)}"
    dtypes = [case.result] if len(exacts) == 1 else [one.dtype for one in torchs]
    found = (
        _check_result(case, device, wide, *results, times, strict)
        for results in zip(ours, torchs, others, exacts, dtypes, strict=True)
    )
    return next(filter(None, found), "")


def _check_result(
    case: Case,
    device: str,
    wide: list[Any],
    got: torch.Tensor,
    own: torch.Tensor,
    other: torch.Tensor,
    exact: torch.Tensor,
    dtype: torch.dtype,
    times: float,
    strict: bool,
) -> str:
    if got.shape != exact.shape or got.dtype != dtype or got.device.type != device:
        return f"{case}: {tuple(got.shape)} {got.dtype} on {got.device}, expected {tuple(exact.shape)} {dtype} on {device}"
    if case.op in fused_cases.COPIES or dtype == torch.int64:  # tokens are right or not
        different = bits(got) != bits(own)
        return f"{case}: {int(different.sum())} elements have other bits" if bool(different.any()) else ""
    if dtype.itemsize == 1:  # where torch's error is by luck less than half a step, ours may round to the other side
        steps = steps_apart(got, own)
        return f"{case}: {int((steps > 1).sum())} elements are off by more than a step" if bool((steps > 1).any()) else ""
    if case.edge:
        return _check_edge(case, device, wide, got, own, other, exact, times, strict)
    finite = exact[exact.isfinite()]
    largest = max(float(finite.abs().max()) if finite.numel() else 0.0, fused_cases.DIFFERENCES.get(case.op, 0.0))
    unit = torch.finfo(dtype).eps * largest
    ours, torchs = _error(got, exact), _error(own, exact)
    allowed = times * torchs + unit * (2 if dtype == torch.float32 else 0.5)
    return "" if ours <= allowed else f"{case}: error {ours:.3g}, torch's {torchs:.3g}, allowed {allowed:.3g}"


def _check_edge(
    case: Case,
    device: str,
    args: list[Any],
    got: torch.Tensor,
    own: torch.Tensor,
    other: torch.Tensor,
    exact: torch.Tensor,
    times: float,
    strict: bool,
) -> str:
    """The same for each element of its own, or each row: a large one must not hide a small one's error. `own` and `other` are what torch gives
    in two ways, or in one."""
    info = torch.finfo(got.dtype)
    exact = torch.where(exact.to(got.dtype).isinf(), exact.to(got.dtype).double(), exact)
    units = extremes.magnitudes(case.op, tuple(args), exact) * info.eps
    ours, torchs, others = _errors(got, exact), _errors(own, exact), _errors(other, exact)
    limit = units / info.eps / 10 + info.smallest_normal
    wrong = torchs > limit  # then torch has lost more than rounding does
    if strict and bool(wrong.any()) and not case.overflows and device == "cpu":  # torch's kernels for GPUs have other faults
        return f"{case}: torch's own result is {own[wrong][0]}, exact is {exact[wrong][0]}: the case must say that it overflows"
    rounding = torch.maximum(torch.where(wrong, 0.0, torchs).amax(), torch.where(others > limit, 0.0, others).amax())
    allowed = times * rounding + units * (2 if got.dtype == torch.float32 else 1)
    allowed = torch.where(
        units > info.max * info.eps, float("inf"), allowed + info.smallest_normal
    )  # sums may overflow on the way
    bad = (ours > allowed) & ~(wrong & case.overflows)
    return f"{case}: {int(bad.sum())} elements: {got[bad][0]}, torch {own[bad][0]}, exact {exact[bad][0]}" if bad.any() else ""


def failures(device: str = "cpu", op: str = "") -> tuple[int, list[str]]:
    """Runs the grid, or one op's part; returns how many cases there were and what is wrong."""
    chosen = [case for case in cases() if case.op == (op or case.op)]
    return len(chosen), [problem for problem in (check(case, device) for case in chosen) if problem]


if __name__ == "__main__":
    count, problems = failures(op=sys.argv[1] if len(sys.argv) > 1 else "")
    print(*problems, f"{count} cases, {len(problems)} inaccurate", sep="\n")
    sys.exit(bool(problems))
