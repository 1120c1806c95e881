"""Kernels for gfx942 become objects: the header, the kernel's descriptor, nothing undefined; with lld, images."""

from __future__ import annotations

import importlib
import re

import pytest

from kernelpack.backends.amd.assemble import find_linker
from kernelpack.backends.installed import backends
from kernelpack.compiled import CompiledKernel
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.errors import BuildError
from kernelpack.ir.types import Type
from kernelpack.options import Options
from kernelpack.runtime.front_end import specialized_ttir
from tests.backends.amd.elf import Elf, read
from tests.backends.amd.kernels import ADD, GFX942, TOTAL, add, compiled, copy, copy_below, functions, total
from tests.backends.cuda.cases import cases
from tests.backends.cuda.elementwise import FLOATS, INTS, Elementwise, Row
from tests.backends.cuda.launch import Case

AMDGPU = 224
"""EM_AMDGPU (LLVM, "User Guide for AMDGPU Backend", ELF Code Object)."""
HSA, CODE_OBJECT_5 = 64, 3
"""ELFOSABI_AMDGPU_HSA and ELFABIVERSION_AMDGPU_HSA_V5."""
GFX942_ANY_XNACK_ANY_SRAMECC = 0x54C


def check(elf: Elf, entry: str, kind: int) -> None:
    assert (elf.machine, elf.kind, elf.abi, elf.flags) == (AMDGPU, kind, (HSA, CODE_OBJECT_5), GFX942_ANY_XNACK_ANY_SRAMECC)
    assert {entry, f"{entry}.kd"} <= elf.symbols.keys()
    assert [name for name, section in elf.symbols.items() if section == 0] == []


def metadata(kernel: CompiledKernel) -> dict[str, str]:
    """Returns what the assembly says of the kernel, by name."""
    return dict(re.findall(r"^\s+\.amdhsa_(\w+) (\d+)$", kernel.stages["amdgcn"], re.MULTILINE))


def test_an_elementwise_kernel() -> None:
    kernel = compiled(add, ADD, {"BLOCK": 1024})
    check(read(kernel.stages["object"]), "add", 1)
    said = metadata(kernel)
    assert (said["group_segment_fixed_size"], said["private_segment_fixed_size"], said["kernarg_size"]) == ("0", "0", "28")
    assert ".max_flat_workgroup_size: 256" in kernel.stages["amdgcn"]
    assert ".wavefront_size: 64" in kernel.stages["amdgcn"]
    figures = {"shared": 0, "num_warps": 4, "threads": 256, "num_ctas": 1, "spills": 0}
    assert kernel.metadata == {**figures, "registers": int(said["next_free_vgpr"])}


def test_code_is_the_same_wherever_its_lines_stand() -> None:
    texts = {compiled(fn, {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 256}).code_sha256 for fn in (copy, copy_below)}
    assert len(texts) == 1


def test_a_reduction_meets_in_local_memory() -> None:
    kernel = compiled(total, TOTAL, {"BLOCK": 4096})
    check(read(kernel.stages["object"]), "total", 1)
    assert metadata(kernel)["group_segment_fixed_size"] == str(kernel.metadata["shared"]) == "16"  # a float of each warp
    assert kernel.stages["amdgcn"].count("ds_bpermute_b32") == 6  # 64 lanes
    assert kernel.stages["amdgcn"].count("s_barrier") == 1


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16"])
def test_functions_are_selected(kind: str) -> None:
    kernel = compiled(functions, {"x": f"*{kind}", "out": f"*{kind}"}, {"BLOCK": 256})
    check(read(kernel.stages["object"]), "functions", 1)
    used = set(re.findall(r"\bv_[a-z]+_f32", kernel.stages["amdgcn"]))
    assert {"v_exp_f32", "v_log_f32", "v_floor_f32"} <= used
    assert "v_sqrt_f32" in used or kind != "fp32"


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_softmax_of_the_op_library(dtype: str) -> None:
    softmax = importlib.import_module("ops.softmax")
    pointers = {"source": f"*{dtype}", "target": f"*{dtype}", "columns": "i32"}
    check(read(compiled(softmax.softmax_row, pointers, {"WHOLE": 1024}, aligned=True).stages["object"]), "softmax_row", 1)
    blocks = {"HEAD": 0, "BLOCK": 2048, "EXP_BOUND": True}
    check(read(compiled(softmax.softmax_in_blocks, pointers, blocks).stages["object"]), "softmax_in_blocks", 1)


WITH_PRODUCTS = ("matmul", "product", "attention", "assembly", "repeated", "batched")
CASES = [case for case in cases() if case.small and not any(word in case.name for word in WITH_PRODUCTS)]


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_kernels_that_the_emulator_runs_for_nvidia(case: Case) -> None:
    """Memory, reductions, scans, atomics, gathers, sorts."""
    launch = case.launch()
    special, _ = launch.specialize()
    module = optimise_ttir(specialized_ttir(launch.fn, special, launch.options))
    kernel = compile_ttir(module, GFX942, launch.options, until="object")
    check(read(kernel.stages["object"]), kernel.entry, 1)


@pytest.mark.parametrize("kind", [*INTS, *FLOATS], ids=str)
def test_every_elementwise_operation_that_is_not_refused(kind: Type) -> None:
    kernel, backend = Elementwise(kind), backends()["amdgpu"]
    every = kernel.rows

    def is_lowered(row: Row) -> bool:
        kernel.rows = [row]
        return all(backend.supports(op, GFX942) is None for op in kernel.module().walk())

    kernel.rows = list(filter(is_lowered, every))
    assert len(kernel.rows) >= 0.7 * len(every)
    made = compile_ttir(kernel.module(), GFX942, Options(), until="object")
    check(read(made.stages["object"]), "kernel", 1)


# ---- images ----


@pytest.mark.skipif(find_linker() is None, reason="lld is missing: pip install -r requirements-amd.txt")
def test_images_are_shared_objects() -> None:
    kernel = compiled(total, TOTAL, {"BLOCK": 4096}, until=None)
    assert kernel.image_kind == "hsaco"
    check(read(kernel.image), "total", 3)
    assert compiled(total, TOTAL, {"BLOCK": 4096}, until=None).image == kernel.image


def test_without_a_linker_the_last_stage_is_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelpack.backends.amd.assemble.find_linker", lambda: None)
    with pytest.raises(BuildError, match="the image of total is linked by lld, which was not found") as refused:
        compiled(total, TOTAL, {"BLOCK": 4096}, until=None)
    assert "pip install ziglang" in str(refused.value)
