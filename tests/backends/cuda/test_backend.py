"""The CUDA backend's contract: targets, refusals, limits, assemblers, and the same bytes every time."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from docs.functions import HEADER
from kernelpack.backends.cuda import CUDABackend
from kernelpack.backends.cuda.assemble import ptx_to_cubin
from kernelpack.backends.cuda.machine.features import ARCHITECTURES, cpp_header
from kernelpack.errors import CompilationError, OutOfResources, TargetError, UnsupportedError
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import IntegerType
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cuda.cases import cases
from tests.backends.cuda.launch import Launch
from tests.backends.cuda.product_cases import Product
from tests.frontend.kernels import vector_add

ELF = b"\x7fELF"


def add(**options: object) -> Launch:
    x = torch.zeros(512)
    arguments = {"x_ptr": x, "y_ptr": x, "out_ptr": x, "n": 512, "BLOCK": 512}
    return Launch(vector_add, (1,), arguments, {}, options=Options(**options))


# ---- targets ----


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a"])
def test_every_architecture_gives_a_cubin(arch: str) -> None:
    kernel = add().compile(f"cuda:{arch}")
    assert kernel.image.startswith(ELF)
    assert kernel.image_kind == "cubin"
    assert f".target {arch}" in kernel.stages["ptx"]


def test_the_header_for_cpp_says_what_the_table_says() -> None:
    assert HEADER.read_text() == cpp_header(), "to fix: make docs"
    for row in ARCHITECTURES.values():
        if not row.name.endswith("a"):
            ptx = add().compile(f"cuda:{row.name}+ptx").image.decode()
            assert f".version {row.ptx // 10}.{row.ptx % 10}\n" in ptx
            assert f"{{{row.number}, {row.driver}}}" in HEADER.read_text()


def test_ptx_is_an_image_that_drivers_compile() -> None:
    kernel = add().compile("cuda:sm_80+ptx")
    assert kernel.image_kind == "ptx"
    assert kernel.image.endswith(b"\0")
    text = kernel.image[:-1].decode()
    assert ".version 8.0" in text  # drivers of CUDA 12.0 and later know it
    assert ptx_to_cubin.assemble(text, "sm_90").image.startswith(ELF)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cuda:sm_70", "'sm_70' is not supported"),
        ("cuda:sm_80+fast", "the only feature of cuda targets is ptx"),
        ("cuda:sm_90a+ptx", "PTX for it serves no other"),
    ],
)
def test_unknown_targets_are_refused_with_a_cure(target: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as raised:
        CUDABackend().resolve_target(Target.parse(target))
    assert raised.value.cure


# ---- refusals ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_warps": 3}, "num_warps=3 is not a power of two"),
        ({"num_stages": 0}, "num_stages=0 is below 1"),
        ({"num_ctas": 2}, "num_ctas=2: sm_80 has no clusters of blocks"),
        ({"num_ctas": 3}, "num_ctas=3 is not a power of two"),
        ({"maxnreg": 300}, "maxnreg=300 is outside"),
        ({"threads_per_warp": 64}, "threads_per_warp=64: warps of NVIDIA GPUs have 32 threads"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        add(**options).compile("cuda:sm_80")


def test_more_threads_than_a_block_has_are_out_of_resources() -> None:
    with pytest.raises(OutOfResources, match="needs 4096 threads, a block has at most 1024"):
        add(num_warps=128).compile("cuda:sm_80")


def test_programs_of_several_blocks_are_computed_by_one() -> None:
    kernel = add(num_ctas=2).compile("cuda:sm_90a")
    assert kernel.metadata["num_ctas"] == 1  # what a launcher makes clusters of
    assert kernel.code_sha256 == add().compile("cuda:sm_90a").code_sha256


def test_the_targets_own_threads_per_warp_may_be_stated() -> None:
    assert add(threads_per_warp=32).compile("cuda:sm_80").image.startswith(ELF)


def test_defaults_are_those_of_triton() -> None:
    assert (Options().num_warps, Options().num_stages, Options().num_ctas, Options().maxnreg) == (4, 3, 1, None)


def test_registers_are_limited_where_asked() -> None:
    wide = Product(num_warps=1)
    assert wide.launch().compile("cuda:sm_80").metadata["registers"] > 64
    launch = replace(wide.launch(), options=Options(num_warps=1, num_stages=2, maxnreg=64))
    assert launch.compile("cuda:sm_80").metadata["registers"] <= 64


def test_supports_refuses_before_lowering() -> None:
    module = parse_module("tt.func public @f(%x: f32, %y: f8E4M3FN, %z: i32) {\n  tt.return\n}")
    (function,) = module.body.operations
    backend, target = CUDABackend(), Target.parse("cuda:sm_80")
    assert backend.supports(function, target) is None
    negated = parse_module("tt.func public @f(%y: f8E4M3FN) {\n  %a = arith.negf %y : f8E4M3FN\n  tt.return\n}")
    widened = parse_module("tt.func public @f(%z: i32) {\n  %a = arith.extsi %z : i32 to i64\n  tt.return\n}")
    (extension,) = (op for op in widened.walk() if op.name == "arith.extsi")
    extension.result.type = IntegerType(33)
    for body, message in ((negated, "f8E4M3FN has no arithmetic"), (widened, "1, 8, 16, 32 or 64 bits, not 33")):
        reasons = [backend.supports(op, target) for op in body.walk()]
        assert any(message in reason for reason in reasons if reason is not None)


@kp.jit
def large(a, b, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    x = tl.load(a + at)
    y = tl.load(b + at)
    tl.store(c + at, tl.dot(x, y))


def test_too_much_shared_memory_names_tile_line_and_cure() -> None:
    x = torch.zeros(256 * 256, dtype=torch.float16)
    launch = Launch(large, (1,), {"a": x, "b": x, "c": x.float(), "BLOCK": 256}, {}, options=Options(num_warps=8))
    with pytest.raises(OutOfResources) as raised:
        launch.compile("cuda:sm_86")
    text = str(raised.value)
    assert "needs 262144 bytes of shared memory, the target has 101376" in text
    assert "131072 bytes for a tile of 256x256xf16" in text
    assert "test_backend.py" in text
    assert "make the blocks smaller" in text
    assert "num_stages" not in text  # nothing is loaded ahead


def test_loops_have_one_stage_less_where_their_buffers_do_not_fit() -> None:
    four, three = (
        Product(shape=(256, 256, 512), block=(128, 128, 64), num_stages=stages).launch().compile("cuda:sm_86")
        for stages in (4, 3)
    )
    assert four.metadata["shared"] == three.metadata["shared"] > 3 * 2 * 128 * 64 * 2 - 1
    assert four.code_sha256 == three.code_sha256


def test_too_many_stages_are_named() -> None:
    product = Product(shape=(256, 256, 512), block=(128, 128, 64), num_stages=5).launch()
    with pytest.raises(OutOfResources) as raised:
        product.compile("cuda:sm_86")
    text = str(raised.value)
    place = re.search(r"the largest users are 81920 bytes for a tile of 5x128x64xbf16 at (\S*kernels\.py):(\d+)", text)
    assert place is not None
    assert "tl.load(" in Path(place[1]).read_text().splitlines()[int(place[2]) - 1]
    assert "lower num_stages (now 5)" in text


# ---- libraries ----


def test_a_missing_libdevice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelpack.backends.cuda.assemble import llir_to_ptx

    monkeypatch.setattr(llir_to_ptx, "find_libdevice", lambda: None)
    llir_to_ptx._libdevice.cache_clear()
    llir_to_ptx._functions_of_libdevice.cache_clear()
    launch = next(case for case in cases() if case.name == "cross-entropy-0.0").launch()  # it calls log
    with pytest.raises(CompilationError, match="libdevice") as raised:
        launch.compile("cuda:sm_80")
    assert "pip install" in str(raised.value)


# ---- determinism ----

PRINT_HASH = """
import hashlib
import re
from tests.backends.cuda.product_cases import Attention
kernel = Attention().launch().compile("cuda:sm_90a")
print(hashlib.sha256(kernel.image + str(sorted(kernel.metadata.items())).encode()).hexdigest())
"""


def test_the_same_bytes_in_every_process() -> None:
    root = Path(__file__).parents[3]
    hashes = set()
    for seed in ("0", "4711"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "KERNELPACK_LOAD_LIBRARY": "0"}
        done = subprocess.run([sys.executable, "-c", PRINT_HASH], env=environment, capture_output=True, text=True, check=True)
        hashes.add(done.stdout.strip())
    assert len(hashes) == 1
    assert len(hashes.pop()) == len(hashlib.sha256().hexdigest())


# ---- names ----


@kp.jit
def awkward_names(v1, phi2, entry, tid, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(v1 + i, tl.load(v1 + i, mask=i < phi2, other=0.0) + entry, mask=i < tid)


def test_parameters_may_be_called_as_the_compiler_calls_its_values() -> None:
    arguments = {"v1": torch.zeros(64), "phi2": 5, "entry": 3, "tid": 9, "BLOCK": 64}
    assert Launch(awkward_names, (1,), arguments, {}).compile("cuda:sm_80").image.startswith(ELF)
