"""The stages of the CPU backend, and that launching what is compiled imports none."""

from __future__ import annotations

import subprocess
import sys

from kernelpack.backends.cpu import stages
from kernelpack.backends.cpu.backend import CPUBackend
from kernelpack.ir.core import Operation
from kernelpack.target import Target
from tests.backends.cpu.plan.plans import ttir
from tests.backends.cpu.plan.test_plan_product import product


def test_the_last_stage_gives_the_image() -> None:
    assert list(stages.STAGES)[-1] == CPUBackend.image_kind


def test_what_is_lowered_and_what_is_refused_by_name() -> None:
    assert stages.supports(Operation("tt.load")) is None
    assert stages.supports(Operation("math.exp")) is None
    assert "PTX" in str(stages.supports(Operation("tt.elementwise_inline_asm")))
    assert "sm_90a" in str(stages.supports(Operation("ttng.wgmma")))


def test_code_is_of_the_level_that_a_kernel_gains_from() -> None:
    """Products of 8-bit floats become products of bfloat16, which tiles compute."""
    sizes = {"M": 16, "N": 16, "K": 32, "A": True, "B": True}
    amx, v4 = Target.parse("cpu:x86-64-v4+amx"), Target.parse("cpu:x86-64-v4")
    for kind in ("*fp8e4nv", "*bf16"):
        assert stages.code_target(amx, ttir(product, a=kind, b=kind, **sizes)) == amx
    assert stages.code_target(amx, ttir(product, **sizes)) == v4


def test_what_launches_imports_no_compiler() -> None:
    program = """
import sys
import kernelpack.runtime.launcher
from kernelpack.backends.installed import backends
for backend in backends().values():
    backend.properties()
compilers = {"llvmlite", "kernelpack.passes", "kernelpack.compiler.stages", "kernelpack.frontend.ast_to_ttir"}
compilers |= {f"kernelpack.backends.{backend}.stages" for backend in backends()}
sys.exit(str(compilers & set(sys.modules)) if compilers & set(sys.modules) else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
