"""How many versions of a kernel calls make: what a backend asks of arguments decides, and nothing else."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest
import torch

from kernelpack.backends.installed import backends
from kernelpack.facts import Fact
from tests.frontend.compiling import define

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kernelpack._C") is None, reason="kernelpack._C is not built")


@pytest.fixture(autouse=True)
def compilations(compilations: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The CPU backend asks what the CUDA backend does, whose launches would need a GPU."""
    found = backends()
    monkeypatch.setattr(type(found["cpu"]), "properties", lambda _: found["cuda"].properties())
    return compilations


def kernel(decorator: str = "@kp.jit", annotation: str = "") -> Any:
    """Returns a kernel that stores its size, and that nobody has launched."""
    return define(f"{decorator}\ndef size(out, n{annotation}):\n    tl.store(out, n)\n")["size"]


def test_a_thousand_sizes_make_three_versions(compilations: list[Any]) -> None:
    choose, out, launch = random.Random(4), torch.zeros(1, dtype=torch.int64), kernel()[(1,)]
    for n in [1, *(choose.choice((choose.randrange(1, 100), choose.randrange(2**31))) for _ in range(1000))]:
        launch(out, n)
        assert out.item() == n
    aligned = Fact("out", "tt.divisibility", 16)
    assert {(special.constexprs, frozenset(special.facts)) for special in compilations} == {
        ((("n", 1),), frozenset({aligned})),
        ((), frozenset({aligned, Fact("n", "tt.divisibility", 16)})),
        ((), frozenset({aligned})),
    }
    assert len(compilations) == 3


def test_sizes_beyond_32_bits_are_versions_of_another_width(compilations: list[Any]) -> None:
    out, launch = torch.zeros(1, dtype=torch.int64), kernel()[(1,)]
    for n in (2**31 - 1, 2**31, 2**31 + 1, 2**40, 3**30, -(2**31) - 1, 2**62 - 1):
        launch(out, n)
        assert out.item() == n
    kinds = [(dict(special.signature)["n"], len(special.facts)) for special in compilations]
    assert kinds == [("i32", 1), ("i64", 2), ("i64", 1)]


def test_an_element_after_two_gigabytes_is_reached(compilations: list[Any]) -> None:
    x = torch.empty(2**31 + 64, dtype=torch.int8)  # of which only one page is touched
    define("@kp.jit\ndef last(x, n):\n    tl.store(x + n - 1, 7)\n")["last"][(1,)](x, x.numel())
    assert x[-1] == 7


@pytest.mark.parametrize(
    ("decorator", "annotation", "versions"),
    [
        ("@kp.jit", "", 3),
        ('@kp.jit(do_not_specialize=["n"])', "", 1),
        ("@kp.jit(do_not_specialize=[1])", "", 1),
        ('@kp.jit(do_not_specialize_on_alignment=["n"])', "", 2),
        ("@kp.jit", ": tl.int32", 2),  # never a constant; its alignment counts
        ("@kp.jit", ": tl.constexpr", 6),
    ],
)
def test_what_an_author_excludes(compilations: list[Any], decorator: str, annotation: str, versions: int) -> None:
    out, launch = torch.zeros(1, dtype=torch.int64), kernel(decorator, annotation)[(1,)]
    for n in (1, 2, 4, 8, 16, 32, 1, 32):
        launch(out, n)
        assert out.item() == n
    assert len(compilations) == versions


def test_dtypes_and_alignment_of_tensors_are_versions(compilations: list[Any]) -> None:
    launch = kernel()[(1,)]
    for dtype in (torch.int64, torch.int32, torch.float32, torch.int32):
        launch(torch.zeros(8, dtype=dtype), 5)
    assert [dict(special.signature)["out"] for special in compilations] == ["*i64", "*i32", "*fp32"]
    launch(torch.zeros(8, dtype=torch.int32)[1:], 5)
    assert compilations[-1].facts == ()
    assert len(compilations) == 4
