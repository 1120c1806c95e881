"""What NVIDIA's GPUs answer to passes that all GPUs share: figures of the architecture, and products of its matrix units."""

from __future__ import annotations

import pytest

from kernelpack.backends.cuda.machine.features import ARCHITECTURES
from kernelpack.backends.cuda.machine.gpu import NvidiaGPU
from kernelpack.ir.core import Operation, entry_function
from kernelpack.layout.families import mma_accumulator, mma_operand
from tests.backends.gpu.ttgir import parse


def dot(element: str, accumulator: str = "f32", precision: str = "tf32") -> Operation:
    a, b, c = f"tensor<32x16x{element}>", f"tensor<16x32x{element}>", f"tensor<32x32x{accumulator}>"
    body = f"%d = tt.dot %a, %b, %c, inputPrecision = {precision} : {a} * {b} -> {c}\ntt.store %p, %d : tensor<32x32x!tt.ptr<{accumulator}>>"
    arguments = f"%a: {a}, %b: {b}, %c: {c}, %p: tensor<32x32x!tt.ptr<{accumulator}>>"
    return entry_function(parse(body, arguments, {})).body.operations[0]


@pytest.mark.parametrize(("name", "shared", "adds"), [("sm_80", 163, False), ("sm_86", 99, False), ("sm_90a", 227, True)])
def test_figures_are_those_of_the_architecture(name: str, shared: int, adds: bool) -> None:
    machine = NvidiaGPU(ARCHITECTURES[name])
    assert (machine.lanes, machine.shared_bytes, machine.adds_neighbours) == (32, shared * 1024, adds)
    assert machine.tile_registers < 255


@pytest.mark.parametrize(
    ("element", "accumulator", "precision", "multiplies", "splits"),
    [
        ("f16", "f32", "tf32", True, False),
        ("f32", "f32", "tf32", True, False),
        ("f32", "f32", "tf32x3", True, True),
        ("f32", "f32", "ieee", False, False),
        ("f64", "f64", "ieee", False, False),
    ],
)
def test_matrix_units_multiply_what_they_have_an_instruction_for(
    element: str, accumulator: str, precision: str, multiplies: bool, splits: bool
) -> None:
    machine, op = NvidiaGPU(ARCHITECTURES["sm_80"]), dot(element, accumulator, precision)
    assert (machine.multiplies(op), machine.splits_operands(op)) == (multiplies, splits)


def test_operands_lie_as_the_instruction_takes_them() -> None:
    machine, op = NvidiaGPU(ARCHITECTURES["sm_80"]), dot("f16")
    assert machine.accumulator_layout(op, 4) == mma_accumulator((32, 32), (2, 2))
    assert machine.operand_layouts(op, 4) == (mma_operand((32, 16), 0, 16, (2, 2)), mma_operand((16, 32), 1, 16, (2, 2)))


def test_operands_of_ordinary_arithmetic_are_read_from_shared_memory() -> None:
    machine = NvidiaGPU(ARCHITECTURES["sm_80"])
    assert machine.operand_layouts(dot("f32", precision="ieee"), 4) == (None, None)
