"""Aligned variants assume what the host function's arguments come from, through conditions too."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpack.opgen.build import plan_library

SOURCE = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def copy(x, out, batch_stride: tl.int64, row_stride: tl.int64, n, B: tl.constexpr):
    at = tl.arange(0, B)
    row = x + tl.program_id(1) * batch_stride + tl.program_id(0) * row_stride
    tl.store(out + at, tl.load(row + at, mask=at < n), mask=at < n)


@kp.op("last_row(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs={"cuda": kp.Config({"B": 16})})
def last_row(x):
    kp.check(x.dim() == 2 or x.dim() == 3, "x has 2 or 3 dimensions")
    out = kp.empty((x.shape[-1],), x.dtype, x.device)
    copy[lambda meta: (1,)](x, out, x.stride(0) if x.dim() == 3 else 0, x.stride(-2), x.shape[-1])
    return out
"""


def test_strides_of_dimensions_that_may_be_absent_are_aligned(tmp_path: Path) -> None:
    file = tmp_path / "last_row.py"
    file.write_text(SOURCE)
    plan = plan_library([file], namespace="some", targets=["cuda:sm_80"])
    (aligned,) = (variant for variant in plan.variants if variant.plain is not None)
    assert {fact.parameter for fact in aligned.facts} == {"x", "out", "batch_stride", "row_stride", "n"}


def test_config_functions_know_which_variants_assume_something(tmp_path: Path) -> None:
    file = tmp_path / "last_row.py"
    file.write_text(SOURCE.replace('kp.Config({"B": 16})', 'lambda point: kp.Config({"B": 32 if point.specialized else 16})'))
    plan = plan_library([file], namespace="some", targets=["cuda:sm_80"])
    assert {variant.plain is None: variant.constexprs["B"] for variant in plan.variants} == {True: 16, False: 32}


def test_a_config_function_may_decline_the_variants_that_assume_something(tmp_path: Path) -> None:
    file = tmp_path / "last_row.py"
    file.write_text(SOURCE.replace('kp.Config({"B": 16})', 'lambda point: None if point.specialized else kp.Config({"B": 16})'))
    plan = plan_library([file], namespace="some", targets=["cuda:sm_80"])
    assert [variant.plain for variant in plan.variants] == [None]


@pytest.mark.parametrize(
    ("excluded", "divisible"),
    [
        ('do_not_specialize=["n", "x"]', {"batch_stride", "out", "row_stride"}),
        ('do_not_specialize_on_alignment=["n", "x"]', {"batch_stride", "out", "row_stride"}),
        ("", {"batch_stride", "n", "out", "row_stride", "x"}),
    ],
)
@pytest.mark.parametrize("ones", ["", 'ones=["n"]'])
def test_what_a_kernels_author_excludes_is_not_assumed(tmp_path: Path, excluded: str, divisible: set[str], ones: str) -> None:
    file = tmp_path / "last_row.py"
    configs = f'configs={{"cuda": kp.Config({{"B": 16}})}}, specialize=[kp.aligned({ones})]'
    text = SOURCE.replace("@kp.jit", f"@kp.jit({excluded})").replace('configs={"cuda": kp.Config({"B": 16})}', configs)
    file.write_text(text)
    plan = plan_library([file], namespace="some", targets=["cuda:sm_80"])
    (aligned,) = (variant for variant in plan.variants if variant.plain is not None)
    constant = {"n"} if ones and not excluded.startswith("do_not_specialize=") else set()
    assert {fact.parameter for fact in aligned.facts if fact.property == "tt.divisibility"} == divisible - constant
    assert {fact.parameter for fact in aligned.assumed if fact.property == "equal_to"} == constant


@pytest.mark.parametrize(("inner", "known"), [(8, 8), (16, 16), (48, 16), (12, 4), (3, None)])
def test_sizes_may_be_divisible_by_less_than_addresses(tmp_path: Path, inner: int, known: int | None) -> None:
    """Rows of 8 elements of 16 bits are what TMA can address."""
    file = tmp_path / "last_row.py"
    file.write_text(SOURCE.replace('"B": 16})}', f'"B": 16}})}}, specialize=[kp.aligned(inner={inner})]'))
    plan = plan_library([file], namespace="some", targets=["cuda:sm_80"])
    (aligned,) = (variant for variant in plan.variants if variant.plain is not None)
    found = {fact.parameter: fact.value for fact in aligned.facts if fact.property == "tt.divisibility"}
    sizes = {} if known is None else dict.fromkeys(("batch_stride", "row_stride", "n"), known)
    assert found == {"x": 16, "out": 16, **sizes}
