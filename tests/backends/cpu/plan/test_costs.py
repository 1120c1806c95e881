"""What operations cost by the table: functions by how they are computed, everything else nothing that is known."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.plan.costs import cost_of
from kernelpack.language.extra import libdevice
from tests.backends.cpu.plan.plans import ttir


@kp.jit
def functions(x, wide, out):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    b = tl.exp(a) + tl.sin(a) + libdevice.pow(a, a) + libdevice.tgamma(a) + libdevice.exp(a) + libdevice.abs(a)
    tl.store(out + i, b + tl.exp(tl.load(wide + i)).to(tl.float32))


def test_costs_by_how_a_function_is_computed() -> None:
    module = ttir(functions, x="*fp32", wide="*fp64", out="*fp32")
    costs = {}
    for op in module.walk():
        if op.results:
            costs[op.attributes.get("symbol") or f"{op.name} {op.result.type}"] = cost_of(op)
    assert costs["math.exp tensor<16xf32>"] == costs["__nv_expf"] == 12
    assert costs["math.sin tensor<16xf32>"] == 40
    assert costs["__nv_powf"] == 80
    assert costs["__nv_tgammaf"] == costs["math.exp tensor<16xf64>"] == 400
    assert costs["arith.addf tensor<16xf32>"] is costs["__nv_fabsf"] is None
