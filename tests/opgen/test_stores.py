"""A kernel that stores through an argument which the schema does not mark is refused when building, at the line of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpack.errors import HostFunctionError
from kernelpack.ir.text import parse_module
from kernelpack.opgen.build import plan_library
from kernelpack.opgen.variants.read_only import written_parameters
from kernelpack.opgen.workers.compile import compile_variants

SOURCE = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def scale(x, out, n, BLOCK: tl.constexpr, IN_PLACE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x + at, mask=at < n) * 2
    if IN_PLACE:
        tl.store(x + at, y, mask=at < n)
    else:
        tl.store(out + at, y, mask=at < n)


@kp.op("doubled({x} x, bool swap) -> Tensor", variants={{"x": [tl.float32]}})
def doubled(x, swap):
    out = kp.empty_like(x)
    scale[(1,)](x, {out}, x.numel(), BLOCK=16, IN_PLACE={in_place})
    return out
"""


def build(folder: Path, x: str, out: str, in_place: bool) -> None:
    (folder / "doubled.py").write_text(SOURCE.format(x=x, out=out, in_place=in_place))
    compile_variants(plan_library([folder], namespace="stores", targets=["cpu:x86-64-v3"]).variants)


@pytest.mark.parametrize(("out", "in_place", "line"), [("out", True, 11), ("x", False, 13), ("x if swap else out", False, 13)])
def test_a_store_through_an_unmarked_argument_is_refused(tmp_path: Path, out: str, in_place: bool, line: int) -> None:
    build(tmp_path, "Tensor(a!)", out, in_place)
    parameter = "x" if in_place else "out"
    stored = rf"doubled.py:{line}:\d+: doubled: its kernel stores through '{parameter}', which is the op's argument 'x' \(.*doubled.py:19"
    for _ in range(2):  # what earlier builds kept changes nothing
        with pytest.raises(HostFunctionError, match=stored) as caught:
            build(tmp_path, "Tensor", out, in_place)
    assert caught.value.cure == "write Tensor(a!) x in the schema, or store to a tensor that kp.empty_like(x) makes"


def test_a_function_may_be_called_with_what_is_read_and_with_what_is_written(tmp_path: Path) -> None:
    """It is compiled once for both."""
    source = SOURCE.replace("@kp.jit", "@kp.jit\ndef place(pointer, at):\n    return pointer + at\n\n\n@kp.jit", 1)
    source = source.replace("x + at", "place(x, at)").replace("out + at", "place(out, at)")
    (tmp_path / "doubled.py").write_text(source.format(x="Tensor", out="out", in_place=False))
    compile_variants(plan_library([tmp_path], namespace="stores", targets=["cpu:x86-64-v3"]).variants)
    (tmp_path / "doubled.py").write_text(source.format(x="Tensor", out="out", in_place=True))
    with pytest.raises(HostFunctionError, match=r"doubled\.py:16:\d+: doubled: its kernel stores through 'x'"):
        compile_variants(plan_library([tmp_path], namespace="stores", targets=["cpu:x86-64-v3"]).variants)


def test_what_is_only_read_needs_no_mark(tmp_path: Path) -> None:
    build(tmp_path, "Tensor", "out", in_place=False)


def test_addresses_are_followed_through_loops_branches_and_calls() -> None:
    """And not mixed up: a loop carries what is read beside what is written."""
    module = parse_module(
        """
        tt.func private @put(%seen: !tt.ptr<f32>, %there: !tt.ptr<f32>) attributes {noinline = true} {
          %value = tt.load %seen : !tt.ptr<f32>
          tt.store %there, %value : !tt.ptr<f32>
          tt.return
        }
        tt.func public @kernel(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %c: !tt.ptr<f32>, %d: !tt.ptr<f32>, %e: !tt.ptr<f32>, %n: i32, %either: i1) {
          %zero = arith.constant 0 : i32
          %one = arith.constant 1 : i32
          %from, %to = scf.for %i = %zero to %n step %one iter_args(%p = %a, %q = %b) -> (!tt.ptr<f32>, !tt.ptr<f32>) : i32 {
            %x = tt.load %p : !tt.ptr<f32>
            tt.store %q, %x : !tt.ptr<f32>
            %further = tt.addptr %p, %one : !tt.ptr<f32>, i32
            %beyond = tt.addptr %q, %one : !tt.ptr<f32>, i32
            scf.yield %further, %beyond : !tt.ptr<f32>, !tt.ptr<f32>
          }
          %place = scf.if %either -> (!tt.ptr<f32>) {
            scf.yield %to : !tt.ptr<f32>
          } else {
            scf.yield %d : !tt.ptr<f32>
          }
          tt.call @put(%from, %place) : (!tt.ptr<f32>, !tt.ptr<f32>) -> ()
          %z = tt.load %e : !tt.ptr<f32>
          tt.return
        }
        """
    )
    assert set(written_parameters(module)) == {"b", "d"}
