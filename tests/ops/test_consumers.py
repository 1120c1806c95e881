"""The ops, in every dtype, work in everything that consumes torch ops: opcheck, compile, export, TorchScript, AOTInductor."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.ops.functional import functional, has_out, results_of
from tests.ops.grid import OPS, cases, module_of
from tests.ops.model import SIZES, Model, inputs

CHECKS = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
EVERY_OP = [(op, dtype) for op in OPS for dtype in module_of(op).RANGES["dtypes"]]
WITH_OUT = [(op, dtype) for op, dtype in EVERY_OP if has_out(op)]


def agrees(run: Callable[..., torch.Tensor], model: Model, sizes: tuple[tuple[int, int], ...] = SIZES) -> None:
    """A model that was transformed computes what it does in eager mode, at all sizes."""
    for batch, length in sizes:
        arguments = inputs(batch, length)
        torch.testing.assert_close(run(*arguments), model(*arguments), atol=8e-3, rtol=2e-2)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model().eval()


@pytest.fixture(scope="module")
def exported(model: Model) -> torch.export.ExportedProgram:
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=1, max=4096)
    shapes = {"x": {0: batch, 1: length}, "angles": {0: length}, "bias": {0: length, 1: length}}
    return torch.export.export(model, inputs(*SIZES[0]), dynamic_shapes=shapes)


def test_the_model_computes_what_torch_computes(model: Model) -> None:
    """The ops against their references, so that the other tests compare with something right."""
    arguments = inputs(2, 24)
    got = model(*arguments)
    originals = torch.ops.kernelpack
    references = SimpleNamespace(**{op: module_of(op).reference for op in OPS})
    references.rope = lambda x, cos, sin, **kwargs: module_of("rope").reference(x, cos, sin, **kwargs).to(x.dtype)
    try:
        torch.ops.kernelpack = references
        expected = model(*arguments)
    finally:
        torch.ops.kernelpack = originals
    torch.testing.assert_close(got[0], expected[0])
    torch.testing.assert_close(got[1:], expected[1:], atol=8e-3, rtol=3e-2)
    torch.testing.assert_close(got.sum(-1), torch.ones(3, 2, 24), atol=2e-2, rtol=0)


@pytest.mark.parametrize(("op", "dtype"), EVERY_OP)
def test_opcheck_accepts_every_op_and_overload(op: str, dtype: str) -> None:
    own = [case for case in cases() if case.op == op and str(case.dtype) == f"torch.{dtype}"]
    args, kwargs = own[len(own) // 3].arguments()
    packet = getattr(torch.ops.kernelpack, op)
    # torch's check of schemas multiplies the arguments, which it cannot if they are 8-bit floats
    checks = CHECKS if dtype.startswith("float8") else ("test_schema", *CHECKS)
    overloads = [(packet.default, kwargs)]
    if has_out(op):
        overloads.append((packet.out, {**kwargs, "out": torch.empty_like(packet(*args, **kwargs))}))
    for overload, given in overloads:
        found = torch.library.opcheck(overload, args, given, test_utils=checks)
        assert found == dict.fromkeys(checks, "SUCCESS")


@pytest.mark.parametrize(("op", "dtype"), WITH_OUT)
def test_out_is_written_in_place(op: str, dtype: str) -> None:
    for case in [case for case in cases() if case.op == op and str(case.dtype) == f"torch.{dtype}"][::9]:
        args, kwargs = case.arguments()
        packet = getattr(torch.ops.kernelpack, op)
        result = functional(op)(*args, **kwargs)
        expected = result[0] if isinstance(result, tuple) else result
        out = torch.full_like(expected, 7)
        address = out.data_ptr()
        assert packet.out(*args, **kwargs, out=out) is None
        assert out.data_ptr() == address
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True, msg=str(case))


def test_compile_makes_one_graph_for_all_sizes(model: Model) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, example: object) -> Callable[..., torch.Tensor]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    agrees(compiled, model, tuple(size for size in SIZES if min(size) > 1))
    assert len(graphs) == 1


def test_inductor_compiles_a_layer(model: Model) -> None:
    """One dtype: AOTInductor, below, compiles them all."""
    torch._dynamo.reset()
    compiled = torch.compile(model.in_bfloat16, fullgraph=True, dynamic=True)
    for size in ((2, 24), (3, 65)):
        x, angles, bias = (value.bfloat16() for value in inputs(*size))
        expected = model.in_bfloat16(x, angles.cos(), angles.sin(), bias)
        torch.testing.assert_close(compiled(x, angles.cos(), angles.sin(), bias), expected, atol=8e-3, rtol=2e-2)


def test_one_export_serves_all_lengths(model: Model, exported: torch.export.ExportedProgram) -> None:
    agrees(exported.module(), model)


def test_exports_survive_a_file(model: Model, exported: torch.export.ExportedProgram, tmp_path: Path) -> None:
    torch.export.save(exported, tmp_path / "model.pt2")
    agrees(torch.export.load(tmp_path / "model.pt2").module(), model, SIZES[:4])


@pytest.mark.slow  # tests/serving packages two models
def test_aot_inductor_packages_the_model(model: Model, exported: torch.export.ExportedProgram, tmp_path: Path) -> None:
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    agrees(torch._inductor.aoti_load_package(path), model)


LOAD = """
import sys, torch
torch.ops.load_library(sys.argv[1])
for path in sys.argv[3:]:
    model = torch.jit.load(path)
    for *arguments, expected in torch.load(sys.argv[2]):
        torch.testing.assert_close(model(*arguments), expected, atol=8e-3, rtol=2e-2)
assert not [name for name in sys.modules if name.startswith("kernelpack")]
print("agrees")
"""


def test_torchscript_loads_in_a_fresh_process(model: Model, library_file: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(model).save(str(tmp_path / "script.pt"))
        torch.jit.trace(model, inputs(2, 24)).save(str(tmp_path / "trace.pt"))
    torch.save([(*inputs(*size), model(*inputs(*size))) for size in SIZES[:5]], tmp_path / "expected")
    command = [library_file, str(tmp_path / "expected"), str(tmp_path / "script.pt"), str(tmp_path / "trace.pt")]
    done = subprocess.run([sys.executable, "-c", LOAD, *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "agrees" in done.stdout


def test_fake_tensors_have_the_results_metadata() -> None:
    """Strides too: a transposed argument still gives a contiguous result."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only

    for case in cases()[::17]:
        args, kwargs = case.arguments()
        packet = getattr(torch.ops.kernelpack, case.op)
        with FakeTensorMode() as mode:
            given, named = tree_map_only(torch.Tensor, mode.from_tensor, (tuple(args), kwargs))
            fake = packet(*given, **named)
        real = packet(*args, **kwargs)
        for one, other in zip(results_of(fake), results_of(real), strict=True):
            assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride()), str(case)
