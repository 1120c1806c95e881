"""`kernelpack build --checked`: a call of an op ends with an error before the first access outside of the storage of a tensor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from kernelpack.cli import main
from kernelpack.errors import BuildError
from kernelpack.opgen.build import Built, build, plan_library, verify
from kernelpack.opgen.load import load

OPS = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def scale_kernel(x, weight, out, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if weight is not None:
        value *= tl.load(weight + at % columns, mask=at < n)
    tl.store(out + at, value, mask=at < n)


@kp.op(
    "scale(Tensor x, Tensor? weight=None) -> Tensor",
    variants={"x": [tl.float32, tl.float16], "weight": [None, kp.same_as("x")]},
)
def scale(x, weight):
    out = kp.empty_like(x)
    scale_kernel[(kp.cdiv(x.numel(), 256),)](x, weight, out, x.numel(), x.shape[-1], BLOCK=256)
    return out


@kp.jit
def follow_kernel(table, out):
    tl.store(out, tl.load(tl.load(table).to(tl.pointer_type(tl.float32))))


@kp.op("follow(Tensor table) -> Tensor", variants={"table": [tl.int64]})
def follow(table):
    out = kp.empty((1,), tl.float32, table.device)
    follow_kernel[(1,)](table, out)
    return out
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("checked")
    (folder / "ops.py").write_text(OPS)
    made = build([folder / "ops.py"], namespace="held", targets=["cpu:native"], out=folder / "held", checked=True)
    load(folder / "held")
    return made


def test_a_forgotten_check_is_an_error_that_names_line_argument_offset_and_shape(built: Built) -> None:
    x = torch.randn(4, 768)
    with pytest.raises(RuntimeError) as raised:
        torch.ops.held.scale(x, torch.randn(5))
    assert re.search(
        r"held::scale: ops.py:11: load through weight: element (5|256|512) of weight is outside of its storage, which holds elements "
        r"0 to 4 \(shape \(5,\), strides \(1,\)\)\n  to fix: check the argument in the host function by kp.check, or mask the access",
        str(raised.value),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_calls_that_stay_inside_give_the_same_result(built: Built, dtype: torch.dtype) -> None:
    x, weight, out = torch.randn(4, 768, dtype=dtype), torch.randn(768, dtype=dtype), torch.empty(4, 768, dtype=dtype)
    assert torch.equal(torch.ops.held.scale(x, weight), x * weight)
    assert torch.equal(torch.ops.held.scale(x), x)  # a variant with fewer parameters
    torch.ops.held.scale.out(x, weight, out=out)
    assert torch.equal(out, x * weight)


def test_a_view_may_reach_as_far_as_its_storage(built: Built) -> None:
    x, storage = torch.ones(1, 100), torch.randn(150)
    assert torch.equal(torch.ops.held.scale(x, storage[50:51]), storage[50:].reshape(1, 100))
    with pytest.raises(RuntimeError, match=r"element 99 of weight .* holds elements -51 to 98 \(shape \(1,\)"):
        torch.ops.held.scale(x, storage[51:52])


def test_accesses_that_belong_to_no_tensor_are_told_by_the_build(built: Built) -> None:
    (warning,) = built.warnings
    assert warning.startswith("follow_kernel")
    assert warning.endswith("1 of its accesses are not checked: their addresses come from memory or from integers")


def test_packs_and_c_functions_say_that_storages_are_asked_for(built: Built) -> None:
    pack = next(pack for pack in built.packs if pack.variant == "scale_kernel-f32-f32.any")
    assert "option: checked = True" in str(pack).splitlines()
    assert (
        "int64_t weight_storage_begin, int64_t weight_storage_end" in (built.directory / "cpp" / "held_kernels.h").read_text()
    )


def test_a_rebuild_is_verified_as_checked(built: Built) -> None:
    sources = [built.directory.parent / "ops.py"]
    assert verify(sources, namespace="held", out=built.directory, checked=True).differences == ()
    assert len(verify(sources, namespace="held", out=built.directory).differences) == len(built.packs)


def test_kernels_for_gpus_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ops.py").write_text(OPS)
    with pytest.raises(BuildError, match="kernels for cuda:sm_90a cannot check their accesses"):
        plan_library([tmp_path / "ops.py"], namespace="held", targets=["cpu:x86-64-v3", "cuda:sm_90a"], checked=True)
    words = [str(tmp_path / "ops.py"), "--namespace", "held", "--target", "cuda:sm_90a", "--checked", "--json"]
    assert main(["build", *words]) == 1
    assert "the emulator checks kernels for GPUs" in json.loads(capsys.readouterr().out)["error"]["cure"]
