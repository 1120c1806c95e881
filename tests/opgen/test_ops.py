"""Built ops compute what their host functions say, and refuse what does not fit, in every life of a host function."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch

from kernelpack.opgen.build import Built

CASES = {
    "scale": [
        ((torch.arange(1000.0),), {}),
        ((torch.randn(7, 30), torch.randn(7, 30)), {"factor": -1.5, "negate": True}),
        ((torch.randn(64).half(),), {"negate": True}),
        ((torch.empty(0),), {}),
    ],
    "row_sum": [
        ((torch.randn(5, 10),), {}),
        ((torch.randn(5, 17),), {}),
        ((torch.randn(4, 3, 2, 300),), {}),
        ((torch.randn(4, 6, 600).bfloat16()[:, ::2, :300],), {}),
        ((torch.randn(33),), {}),
        ((torch.randn(3, 0, 65),), {}),
    ],
    "broadcast_add": [
        ((torch.randn(5, 9), torch.randn(9)), {}),
        ((torch.randn(5, 0), torch.randn(0)), {}),
        ((torch.randn(9, 5).t(), torch.randn(5, 1)), {}),
        ((torch.arange(12, dtype=torch.int32).reshape(3, 4), torch.ones((), dtype=torch.int32)), {}),
    ],
    "weighed_sum": [
        ((torch.randn(5, 64), torch.randn(5, 64)), {}),
        ((torch.randn(33, 5).t(), torch.randn(5, 40)[:, ::2][:, :20].repeat(1, 2)[:, :33], torch.randn(33)), {}),
        ((torch.randn(5, 32).half(), torch.randn(5, 1).half().expand(5, 32), torch.randn(32)), {}),
        ((torch.randn(0, 5), torch.randn(0, 5)), {}),
    ],
    "minmax": [((torch.randn(6, 40),), {}), ((torch.randn(3, 700),), {})],
}
REFERENCE = {
    "scale": lambda x, bias=None, factor=2.0, negate=False: (
        (x.float() * factor + (0 if bias is None else bias)) * (-1 if negate else 1)
    ).to(x.dtype),
    "row_sum": lambda x: x.float().sum(-1),
    "broadcast_add": lambda x, y: x + y,
    "weighed_sum": lambda x, y, factors=None: (x.float() + y.float() * (1 if factors is None else factors)).to(x.dtype),
    "minmax": lambda x: (x.amin(-1), x.amax(-1)),
}
PAIRS = [(name, index) for name, cases in CASES.items() for index in range(len(cases))]


def as_tuple(value: object) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(("name", "index"), PAIRS)
def test_built_op_agrees_with_torch(sample: ModuleType, name: str, index: int) -> None:
    args, kwargs = CASES[name][index]
    got = as_tuple(getattr(torch.ops.sample, name)(*args, **kwargs))
    for value, expected in zip(got, as_tuple(REFERENCE[name](*args, **kwargs)), strict=True):
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(("name", "index"), PAIRS)
def test_development_run_agrees_with_torch(development: ModuleType, name: str, index: int) -> None:
    args, kwargs = CASES[name][index]
    got = as_tuple(getattr(development, name)(*args, **kwargs))
    for value, expected in zip(got, as_tuple(REFERENCE[name](*args, **kwargs)), strict=True):
        torch.testing.assert_close(value, expected)


def test_parts_of_tuples_have_facts_and_names_of_their_own(sample_built: Built) -> None:
    """Absent tensors in tuples are compile-time values; a part may be assumed to be 1, and choose a config."""
    packs = [pack for pack in sample_built.packs if pack.variant.startswith("weighed_sum_kernel-f32-f32")]
    aligned = next(pack for pack in packs if pack.variant.endswith(".aligned") and pack.target.backend == "cpu")
    plain = next(pack for pack in packs if pack.variant.endswith(".any") and pack.target.backend == "cpu")
    assert [str(parameter.name) for parameter in plain.parameters] == [
        "tensors_0", "tensors_1", "out", "steps_0_row", "steps_0_column", "steps_1_row", "steps_1_column", "steps_1_factors",
        "extent_rows", "extent_columns",
    ]  # fmt: skip
    assert plain.constexprs["steps_0_factors"] == "None"
    assert {"steps_0_column": "1", "steps_1_column": "1"}.items() <= aligned.constexprs.items()


@pytest.mark.parametrize("life", ["sample", "development"])
def test_a_launch_that_can_write_to_no_element_is_left_out(life: str, request: pytest.FixtureRequest) -> None:
    """Other launches are made, though a result be empty. As many programs as here would take hours."""
    module = request.getfixturevalue(life)
    copy_and_count = torch.ops.sample.copy_and_count if life == "sample" else module.copy_and_count
    many = torch.empty(2**40, 0)
    assert copy_and_count(many, None).shape == many.shape
    assert copy_and_count(many, torch.empty(0, dtype=torch.int32)).shape == many.shape
    count = torch.zeros(1, dtype=torch.int32)
    assert copy_and_count(torch.empty(5, 0), count).shape == (5, 0)
    x = torch.randn(3, 7)
    assert torch.equal(copy_and_count(x, count), x)
    assert count.item() == 8
    with pytest.raises(
        RuntimeError, match=r"x has dtype (torch\.)?float64"
    ):  # what is checked, is checked without elements too
        copy_and_count(torch.empty(0, 0, dtype=torch.float64), None)


@pytest.mark.parametrize(("name", "index"), PAIRS)
def test_out_overload_writes_in_place(sample: ModuleType, name: str, index: int) -> None:
    args, kwargs = CASES[name][index]
    expected = as_tuple(REFERENCE[name](*args, **kwargs))
    names = ["low", "high"] if name == "minmax" else ["out"]
    outs = {
        key: torch.full_like(value, 77, memory_format=torch.contiguous_format)
        for key, value in zip(names, expected, strict=True)
    }
    addresses = [value.data_ptr() for value in outs.values()]
    assert getattr(torch.ops.sample, name).out(*args, **kwargs, **outs) is None
    for value, reference, address in zip(outs.values(), expected, addresses, strict=True):
        torch.testing.assert_close(value, reference)
        assert value.data_ptr() == address


def test_development_run_refuses_none_by_name(development: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"minmax: x has dtype None, expected float32"):
        development.minmax(None)


def test_mutating_op_writes_its_argument(sample: ModuleType) -> None:
    for dtype in (torch.int32, torch.int64):
        x = torch.arange(100, dtype=dtype)
        assert torch.ops.sample.increment(x, 5) is None
        assert torch.equal(x, torch.arange(5, 105, dtype=dtype))


def test_failed_assertions_of_kernels_are_errors(sample: ModuleType, development: ModuleType) -> None:
    for count_down in (torch.ops.sample.count_down, development.count_down):
        x = torch.ones(100_000, dtype=torch.int32)
        count_down(x)
        assert x.count_nonzero() == 0
        x[:99_000] = 1
        with pytest.raises(RuntimeError, match=r"sample_ops.py:\d+: assertion failed: 100% of x must be positive"):
            count_down(x)


def test_lists_dtypes_and_number_results(sample: ModuleType) -> None:
    like = torch.empty(1)
    out, count, total = torch.ops.sample.fresh(like, [2, 3], torch.int64, [0.25, 1.0])
    assert out.shape == (2, 3, 2)
    assert out.dtype == torch.int64
    assert torch.equal(out, torch.full((2, 3, 2), 7))
    assert (count, total) == (12, 1.75)
    out, count, total = torch.ops.sample.fresh(like, [], device="cpu:0")
    assert (out.shape, out.dtype, count, total) == ((2,), torch.float32, 2, 0.5)
    with pytest.raises(RuntimeError, match=r"sample::fresh: no torch.float16 here"):
        torch.ops.sample.fresh(like, [1], torch.float16)


def test_every_type_of_argument(sample: ModuleType) -> None:
    every, like = torch.ops.sample.every, torch.empty(1)
    out, total = every(like, [1, 2], [True, False, True], 70, 3, 4, True, torch.float32, "cpu")
    assert torch.equal(out, torch.full((70,), 7.0))
    assert total == 143_521
    assert every(like, [1, 2], [], 0, None, None, None, torch.float32, torch.device("cpu"))[1] == 21
    with pytest.raises(RuntimeError, match=r"sample::every: dtype is torch\.int8"):
        every(like, [1, 2], [], 0, None, None, False, torch.int8, "cpu")
    y = torch.zeros(100, dtype=torch.int32)
    torch.ops.sample.increment_given(torch.zeros(5, dtype=torch.int32), y)
    torch.ops.sample.increment_given(torch.zeros(5, dtype=torch.int32), None)
    assert torch.equal(y, torch.full((100,), 5, dtype=torch.int32))


def test_symbols_that_have_values_are_arguments(sample: ModuleType) -> None:
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    environment = ShapeEnv()
    n, m = (
        environment.create_symintnode(
            environment.create_symbol(value, source=ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC), hint=value
        )
        for name, value in (("n", 70), ("m", 3))
    )
    out, total = torch.ops.sample.every(torch.empty(1), [1, 2], [], n, m, None, None, torch.float32, "cpu")
    assert (out.shape, total) == ((70,), 3021)
    assert torch.ops.sample.fresh(torch.empty(1), [n, m])[0].shape == (70, 3, 2)


def test_what_torch_says_of_a_tensor_that_cannot_be_read_names_the_op(sample: ModuleType) -> None:
    x = torch.ones(3)
    torch._C._set_throw_on_mutable_data_ptr(x)
    with pytest.raises(RuntimeError, match="sample::scale: torch failed while reading a tensor"):
        torch.ops.sample.scale(x)


@pytest.mark.parametrize("a", [-17, -3, -1, 0, 3, 16, 1 << 40])
@pytest.mark.parametrize("b", [-5, -1, 1, 4])
@pytest.mark.parametrize(("f", "mode"), [(-7.25, 0), (0.1, 1), (6.5, 2)])
def test_arithmetic_means_what_python_means(
    sample: ModuleType, development: ModuleType, a: int, b: int, f: float, mode: int
) -> None:
    x = torch.empty(16)
    expected = development.arithmetic(x, a, b, f, mode)
    got = torch.ops.sample.arithmetic(x, a, b, f, mode)
    assert list(got) == list(expected)
    assert [type(value) for value in got] == [type(value) for value in expected]


def test_a_launch_in_a_function_of_its_own_gets_the_config_in_development_too(development: ModuleType) -> None:
    x = torch.randn(70)
    torch.testing.assert_close(development.scale(x, negate=True), -2 * x)


def test_the_number_of_threads_is_that_of_the_call(sample: ModuleType) -> None:
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(torch.ops.sample.arithmetic(torch.empty(16), 1, 1, 0.5)[8])
    finally:
        torch.set_num_threads(threads)
    assert found[1] - found[0] == 2


# -- bad input: an exception that names op, argument, what came and what to do; the next call works -------------------------

BAD = [
    (lambda ops: ops.scale(torch.ones(4, dtype=torch.float64)), r"scale: x has dtype float64.*float32, float16.*to fix: .*\.to\("),
    (lambda ops: ops.scale(torch.ones(4, dtype=torch.complex64)), r"scale: x has dtype complex64"),
    (lambda ops: ops.scale(torch.ones(4), torch.ones(4).half()), r"scale: bias has dtype float16.*None, float32"),
    (lambda ops: ops.scale(torch.ones(4), torch.ones(5)), r"scale: bias has shape \(5,\), x has \(4,\)"),
    (lambda ops: ops.scale(torch.ones(4, 4).t()), r"scale: x must be contiguous, its strides are \(1, 4\)"),
    (lambda ops: ops.broadcast_add(torch.ones(4, 4), torch.ones(4, 4, dtype=torch.int32)), r"y has dtype int32, x has float32"),
    (lambda ops: ops.broadcast_add(torch.ones(4), torch.ones(4)), r"x must have 2 dimensions, it has shape \(4,\)"),
    (lambda ops: ops.broadcast_add(torch.ones(4, 4), torch.ones(3)), r"y of shape \(3,\) does not broadcast to \(4, 4\)"),
    (lambda ops: ops.broadcast_add(torch.ones(4, 4), torch.ones(1, 4, 4)), r"y of shape \(1, 4, 4\) does not broadcast"),
    (lambda ops: ops.row_sum(torch.ones(())), r"row_sum: .*dimension"),
    (lambda ops: ops.row_sum(torch.ones(4, 4, 2, 70).permute(2, 0, 1, 3)[:, :, :3]), r"need more than 2 strides.*contiguous\(\)"),
    (lambda ops: ops.minmax(torch.ones(2, 4000)), r"BLOCK of kernel minmax_kernel is 4096, built are: 64, 1024 \(nearest: 1024\).*"
     r'to fix: add 4096 to variants\["BLOCK"\] at sample_ops.py:\d+ and run: kernelpack build sample_ops.py --namespace sample'),
    (lambda ops: ops.increment(torch.ones(4, dtype=torch.int32), 2**31), r"amount of kernel increment_kernel is 2147483648, which does "
     r"not fit its 32 bits\n  to fix: annotate the kernel's parameter amount: tl.int64"),
    (lambda ops: ops.increment(torch.ones(1, dtype=torch.int32).expand(4)), r"x (is written to|must be contiguous)"),
    (lambda ops: ops.fresh(torch.ones(1), [-2]), r"fresh: out would have the negative size -2"),
    (lambda ops: ops.fresh(torch.ones(1), [2], device="meta"), r"fresh: out would be on meta, the op's tensors are on cpu\n  to fix"),
    (lambda ops: ops.arithmetic(torch.ones(16), 1, 1, math.nan), r"arithmetic: a float of nan is no integer of 64 bits"),
    (lambda ops: ops.arithmetic(torch.ones(16), 1, 1, 0.5, 64), r"arithmetic: 1 << 64 does not fit 64 bits"),
    (lambda ops: ops.arithmetic(torch.ones(16), 1, 1, 0.5, -1), r"arithmetic: negative shift count"),
    (lambda ops: ops.arithmetic(torch.ones(16), 1, 0, 0.5), r"arithmetic: b is 0, f is 0.5, mode is 0"),
    (lambda ops: ops.scale.out(torch.ones(4), out=torch.ones(3)), r"out has shape \(3,\), the result has \(4,\)"),
    (lambda ops: ops.scale.out(torch.ones(4), out=torch.ones(4).half()), r"out has dtype torch.float16, the result has torch.float32"),
    (lambda ops: ops.scale.out(torch.ones(4), out=torch.ones(8)[::2]), r"out has strides \(2,\), the result has \(1,\)"),
    (lambda ops: ops.broadcast_add(torch.ones(4, 4), None), r"broadcast_add: y is None\n  to fix: pass a tensor"),
    (lambda ops: ops.scale(freed(4)), r"scale: x of shape \(4,\) has no memory: its storage was freed.*to fix"),
    (lambda ops: ops.scale(torch.ones(1).expand([1] * 500)), r"scale: x has 500 dimensions, at most 64.*to fix"),
    (lambda ops: ops.scale(torch.ones(4, dtype=torch.float8_e8m0fnu)), r"scale: x has dtype float8_e8m0fnu, built are: [\w, ]*\n  to fix: convert it with x.to\(...\)$"),
    (lambda ops: ops.fresh(torch.ones(1), [1] * 65, torch.int64), r"fresh: a shape has more than 64 dimensions"),
    (lambda ops: ops.fresh(torch.ones(1), [1], values=[0.5] * 65), r"fresh: a list argument has more than 64 values"),
    (lambda ops: ops.scale(torch.ones(4), torch.ones(4, device="meta")), r"bias is on meta, x is on cpu|device"),
]  # fmt: skip


def freed(size: int) -> torch.Tensor:
    """A tensor that gave its memory back, as those of sharded models do between uses."""
    x = torch.ones(size)
    x.untyped_storage().resize_(0)
    return x


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_input_is_refused_by_name(sample: ModuleType, index: int) -> None:
    call, pattern = BAD[index]
    with pytest.raises(RuntimeError, match=f"(?s){pattern}"):
        call(torch.ops.sample)
    torch.testing.assert_close(torch.ops.sample.scale(torch.ones(4)), torch.full((4,), 2.0))


def test_out_lies_apart_from_what_the_op_reads(sample: ModuleType) -> None:
    """A kernel may read a row after it has written another: what shares memory is refused, what lies beside it is not."""
    memory = torch.arange(48.0)
    x, bias = memory[:16].view(4, 4), memory[16:32].view(4, 4)
    for start in (0, 3, 15, 16, 20, 31):
        out = memory[start : start + 16].view(4, 4)
        with pytest.raises(
            RuntimeError, match=r"sample::scale: out lies in the memory of (x|bias), .*\n  to fix: pass another"
        ):
            torch.ops.sample.scale.out(x, bias, out=out)
    assert torch.equal(memory, torch.arange(48.0))
    torch.ops.sample.scale.out(x, bias, out=memory[32:].view(4, 4))
    assert torch.equal(memory[32:], torch.arange(16.0) * 3 + 16)
    rows = torch.randn(2, 5)
    with pytest.raises(RuntimeError, match="sample::minmax: high lies in the memory of low"):
        torch.ops.sample.minmax.out(rows, low=memory[:2], high=memory[1:3])
    torch.ops.sample.scale.out(torch.empty(0), out=torch.empty(0))


def test_writing_is_refused_where_a_tensor_is_negated_when_it_is_read(sample: ModuleType) -> None:
    """Torch's own function for such tensors writes back the first result, which is none of these ops' tensors."""
    ops = torch.ops.sample
    x, count = torch.ones(4), torch.zeros(1, dtype=torch.int32)
    for call in (
        lambda: ops.increment(torch._neg_view(x)),
        lambda: ops.copy_and_count(torch._neg_view(x), count),
        lambda: ops.copy_and_count(x, torch._neg_view(count)),
        lambda: ops.scale.out(x, out=torch._neg_view(torch.empty(4))),
    ):
        with pytest.raises(RuntimeError, match=r"sample::\w+: .* negated .*\n  to fix: call \.resolve_neg\(\)"):
            call()
    assert torch.equal(ops.scale(torch._neg_view(x)), torch.full((4,), -2.0))
    assert torch.equal(x, torch.ones(4))
    assert not count.any()


# -- sizes beyond 32 bits ---------------------------------------------------------------------------------------------------


def far_apart(columns: int) -> torch.Tensor:
    """Two rows, 2^31 + 8 elements apart; the memory between them is never touched."""
    x = torch.empty_strided((2, columns), ((1 << 31) + 8, 1), dtype=torch.bfloat16)
    return x.copy_(torch.randn(2, columns))


def test_strides_beyond_32_bits_widen_where_the_kernel_says_so(sample: ModuleType) -> None:
    x = far_apart(300)
    torch.testing.assert_close(torch.ops.sample.row_sum(x), x.float().sum(-1))


def test_strides_beyond_32_bits_are_refused_where_it_does_not(sample: ModuleType) -> None:
    message = r"(?s)sample::row_sum: row_stride of kernel small_row_sum_kernel is 2147483656, which does not fit its 32 bits.*row_stride: tl.int64"
    with pytest.raises(RuntimeError, match=message):
        torch.ops.sample.row_sum(far_apart(30))
    x = torch.randn(2, 30)
    torch.testing.assert_close(torch.ops.sample.row_sum(x), x.sum(-1))


def test_more_rows_than_a_grid_has_are_refused(sample: ModuleType) -> None:
    x = torch.ones(1, 70).expand(1 << 31, 70)
    with pytest.raises(
        RuntimeError, match=r"sample::row_sum: rows of kernel row_sum_kernel is 2147483648, which does not fit its 32 bits"
    ):
        torch.ops.sample.row_sum(x)


def test_fakes_know_shapes_beyond_32_bits(sample: ModuleType) -> None:
    x = torch.empty((1 << 33, 3, 70), device="meta")
    assert torch.ops.sample.row_sum(x).shape == (1 << 33, 3)
    assert torch.ops.sample.scale(x).shape == x.shape
    with pytest.raises(RuntimeError, match="sample::scale: bias has shape"):
        torch.ops.sample.scale(x, x[1:])


def test_no_memory_leaks_from_calls_that_fail_or_succeed(sample: ModuleType) -> None:
    import gc
    import resource

    big = torch.ones(1 << 20)
    for _ in range(20):
        torch.ops.sample.scale(big, big)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        torch.ops.sample.scale(big, big, factor=3.0)
        torch.ops.sample.fresh(big, [2, 3], torch.int64, [0.25])
        with pytest.raises(RuntimeError):
            torch.ops.sample.scale(big, torch.ones(1 << 19))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 40_000, f"{grown} KB more after 200 calls with 4 MB tensors"


def test_torch_profiler_names_the_variants_that_ran(sample: ModuleType) -> None:
    x = torch.randn(5, 10)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ops.sample.row_sum(x)
    (op,) = (event for event in profile.events() if event.name == "sample::row_sum")
    (launch,) = op.cpu_children
    assert launch.name.startswith("small_row_sum_kernel-f32"), launch.name
