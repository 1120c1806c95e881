"""Python that has no translation in a host function is refused when building, with its line and what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelpack.errors import HostFunctionError, KernelpackError
from kernelpack.opgen.build import plan_library

HEAD = """
import math
from typing import NamedTuple

import torch

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@kp.jit
def clash(x, x_0):
    tl.store(x[1], tl.load(x[0]) + x_0)


@kp.jit
def scaled(out, factor: tl.float16):
    tl.store(out, factor)


class Pair(NamedTuple):
    left: tl.int64
    right: tl.int64 = 1


def recursive(n):
    return recursive(n - 1)


@kp.op("f(Tensor x, int n=1, float? scale=None, Tensor? bias=None) -> Tensor", variants={"x": [tl.float32]})
def f(x, n, scale, bias):
    out = kp.empty_like(x)
"""
TAIL = """
    kernel[(1,)](x, out, n, BLOCK=16)
    return out
"""

# statements before the launch; the line that is at fault is the one with the marker, or the only one
REFUSED = [
    ("scaled[(1,)](out, 0.5)", "'factor' of scaled is fp16(.|\n)*annotate it tl.float32"),
    ("while n > 1: n = n - 1", "While has no translation in a host function"),
    ("try: n = 1\n    except ValueError: pass", "Try has no translation"),
    ("with torch.no_grad(): pass", "With has no translation"),
    ("def inner(): return 1", "FunctionDef has no translation"),
    ("n = [i for i in range(3)]", "ListComp has no translation"),
    ("n = {1: 2}[1]", "Dict has no translation"),
    ("global y", "Global has no translation"),
    ("del n", "Delete has no translation"),
    ("n = (m := 3)", "NamedExpr has no translation"),
    ("import os", "Import has no translation"),
    ("print(n)", "'print' cannot be called in a host function"),
    ("n = n.bit_length()", "expected a Tensor, found int"),
    ("y = torch.zeros(3)", "'zeros' cannot be called in a host function(.|\n)*kp.empty(.|\n)*have a kernel store"),
    ("y = torch.empty_like(x)", "'empty_like' cannot be called in a host function(.|\n)*to fix: write kp.empty_like"),
    ("y = torch.empty((3,), dtype=x.dtype)", "'empty' cannot be called(.|\n)*to fix: write kp.empty\\(shape, dtype, device"),
    ("y = torch.empty_strided((3,), (1,))", "'empty_strided' cannot be called(.|\n)*to fix: write kp.empty_strided"),
    ("torch._check(n > 0)", "'_check' cannot be called(.|\n)*to fix: write kp.check"),
    ("n = torch.get_num_threads()", "'get_num_threads' cannot be called(.|\n)*to fix: write kp.num_threads"),
    ("n = torch.sym_max(n, 3)", "'sym_max' cannot be called(.|\n)*to fix: write max"),
    ("s = torch.broadcast_shapes(x.shape, x.shape)", "'broadcast_shapes' cannot be called(.|\n)*kp.broadcast_shapes"),
    ("y = torch.nn.functional.pad(x, (1, 1))", "'.*pad.*' cannot be called in a host function"),
    ("y = torch.nn.functional.relu(x)", "'relu' cannot be called in a host function"),
    ("n = tl.cdiv(n, 3)", "cdiv is a kernel(.|\n)*to fix: write kp.cdiv"),
    ("n = tl.maximum(n, 3)", "'maximum' cannot be called(.|\n)*to fix: write max"),
    ("y = x.new_empty((3,))", "Tensor.new_empty has no translation(.|\n)*to fix: write kp.empty\\(shape, x.dtype"),
    ("y = x.expand(3, 4)", "Tensor.expand has no translation(.|\n)*kp.broadcast_strides"),
    ("y = x.abs()", "Tensor.abs has no translation(.|\n)*host functions can use"),
    ("x = x.contiguous()", "Tensor.contiguous has no translation(.|\n)*kp.check\\(x.is_contiguous"),
    ("y = x + 1", "Tensor"),
    ("y = -x", "Tensor"),
    ("y = x[0]", "Tensor cannot be indexed"),
    ("x[0] = 1", "only names can be assigned(.|\n)*written by kernels"),
    ("x.shape = (1,)", "only names can be assigned"),
    ("if x: n = 2", "the truth of Tensor is not defined"),
    ("if bias: n = 2", "truth of Tensor or None is not defined(.|\n)*is not None"),
    ("n = bias.shape[0]", "bias may be None here(.|\n)*if bias is None"),
    ("y = scale * 2", "scale may be None here"),
    ("n = undefined", "name 'undefined' is not defined"),
    ("n = math.absent", "math has no attribute 'absent'"),
    ("out = kp.emtpy_like(x)", "kp has no attribute 'emtpy_like'; did you mean 'empty_like'"),
    ("n = math.gcd(4, 6)", "'gcd' cannot be called"),
    ("n = 1 // 0", "ZeroDivisionError"),
    ("n = 2**70", "64 bits"),
    ("n = recursive(3)", "calls itself"),
    ("n = kp.cdiv(1)", "missing a required argument: 'div'"),
    ('kp.check(n > 0, f"n is {n:>5}")', "takes no format"),
    ("kp.check(n > 0, n)", "a message is a str or an f-string"),
    ("n == 1", "this has no effect"),
    ("kp.cdiv(n, 2)", "the result is not used"),
    ("a, b = (1, 2, 3)", "cannot unpack 3 values into 2 names"),
    ("n = (1, 2)[5]", "index 5 is out of range"),
    ("n = (1, 2)[n]", "a number that is known when building"),
    ("n = x.shape[0:4:2]", "slices take no step"),
    ("n = max(n)", "max takes two or more numbers"),
    ("for i in x.shape: n = i", "range"),
    ("for i in range(3): kernel[(1,)](x, out, n, BLOCK=16)", "a launch inside a loop(.|\n)*dimension of the grid"),
    ("for i in range(3): return out", "return inside a loop"),
    ("for i in range(3): y = kp.empty_like(x)", "inside a loop"),
    ("kernel(x, out, n, 16)", "is a kernel(.|\n)*launch it: kernel\\[grid\\]"),
    ("recursive[(1,)](x, out, n)", "recursive is a Python function, no kernel(.|\n)*@kp.jit"),
    ("kernel[()](x, out, n, BLOCK=16)", "a grid has one to three dimensions, not 0"),
    ("kernel[(1,)](x, out, BLOCK=16)", "kernel gets no 'n'"),
    ("kernel[(1,)](x, out, n, n, n)", "kernel takes 4 arguments"),
    ("kernel[(1,)](x, out, n, BLOCK=16, x=x)", "kernel gets 'x' twice"),
    ("kernel[(1,)](x, out, n, WIDTH=16)", "no parameter 'WIDTH'"),
    ("kernel[(1,)](x, out, n, BLOCK=16, num_warps=n)", "num_warps must be known when building"),
    ("kernel[(1,)](x, out, x.shape, BLOCK=16)", "kernel argument n gets ints"),
    ("n = Pair(n).middle", "Pair has no field 'middle'"),
    ("n = Pair(1, 2, 3)", "Pair: too many positional arguments"),
    ("n = Pair(right=2)", "Pair: missing a required argument: 'left'"),
    ("kernel[(1,)](x, out, Pair(out, math), BLOCK=16)", "n_right is a Python module"),
    ("kernel[(1,)](x, out, n, BLOCK=(16, 2))", "constexpr BLOCK gets ints"),
    ("clash[(1,)]((x, out), n)", "a part of a tuple and a parameter are both called x_0(.|\n)*rename one of them"),
    ("kernel[(1,)](x, out, n, BLOCK=n)", 'constexpr \'BLOCK\' of kernel is known only when the op is called(.|\n)*variants={..., "BLOCK": \\[...\\]}'),
    ("kernel[(1,)](x, out, n)", "nothing binds constexpr 'BLOCK'"),
    ('kernel[lambda meta: (meta["WIDTH"],)](x, out, n, BLOCK=16)', 'meta\\["WIDTH"\\], which is no integer constexpr'),
    ("kernel[lambda: (1,)](x, out, n, BLOCK=16)", "a lambda can only be a grid(.|\n)*lambda meta"),
    ("if n > 5: return x", "returns its argument 'x'"),
    ("return out, out", "returns 2 values, the schema has 1"),
    ("return n", "expected a Tensor, found int"),
    ("raise ValueError", "raise takes an exception with one message"),
    ("y = kp.empty((2,), n, x.device)", "expected a dtype, found int"),
    ("y = kp.empty(3, x.dtype, x.device)", "expected a tuple of ints"),
]  # fmt: skip


def plan(tmp_path: Path, body: str) -> Path:
    file = tmp_path / "my_ops.py"
    file.write_text(f"{HEAD}    {body}{TAIL}")
    plan_library([file], namespace="mine", targets=["cpu:x86-64-v3"])
    return file


def test_what_is_refused_is_refused_for_its_own_sake(tmp_path: Path) -> None:
    plan(tmp_path, "pass")


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_refused_with_its_line(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(HostFunctionError, match=message) as raised:
        plan(tmp_path, body)
    first = HEAD.count("\n") + 1
    found = re.match(rf"{tmp_path}/my_ops\.py:(\d+)(:\d+)?: ", str(raised.value))
    assert found is not None, str(raised.value)
    start = HEAD[: HEAD.index("return recursive")].count("\n") + 1 if "recursive" in body else first
    assert start <= int(found[1]) <= first + body.count("\n")


def test_files_that_are_no_python_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import kernelpack as kp\n\ndef f(:\n")
    with pytest.raises(KernelpackError, match=r"broken.py:3:\d+: invalid syntax"):
        plan_library([file], namespace="mine", targets=["cpu:x86-64-v3"])
    file.write_text("x = 1\n")
    with pytest.raises(KernelpackError, match=r"no ops in .*broken.py(.|\n)*@kp.op"):
        plan_library([file], namespace="mine", targets=["cpu:x86-64-v3"])
    with pytest.raises(KernelpackError, match=r"absent\.py does not exist"):
        plan_library([tmp_path / "absent.py"], namespace="mine", targets=["cpu:x86-64-v3"])


@pytest.mark.parametrize("name", ["ops.so", "ops.pyc", "ops.txt"])
def test_a_source_that_is_no_python_file_is_refused(tmp_path: Path, name: str) -> None:
    """Python imports files of some names as machine code, which runs before anybody sees what it is."""
    file = tmp_path / name
    file.write_bytes(b"\x7fELF")
    with pytest.raises(KernelpackError, match=rf"{name} is not a Python file\n  to fix: name a \*.py file"):
        plan_library([file], namespace="my", targets=["cpu:x86-64-v3"])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cpu", "does not have the form backend:arch"),
        ("npu:v1", "no backend is called 'npu'(.|\n)*use one of amdgpu, cpu, cuda"),
        ("cpu:z80", "cpu:z80 is not a CPU target(.|\n)*cpu:x86-64-v4"),
        ("cuda:sm_12", "sm_12"),
        ("cpu:x86-64-v3+sse9", "is not a CPU target"),
    ],
)
def test_unknown_targets_are_refused_with_what_exists(tmp_path: Path, target: str, message: str) -> None:
    file = tmp_path / "my_ops.py"
    file.write_text(f"{HEAD}    pass{TAIL}")
    with pytest.raises(KernelpackError, match=message):
        plan_library([file], namespace="mine", targets=[target])
