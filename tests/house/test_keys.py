"""What decides code is part of every cache key: each file that compiling imports, and each value of an environment variable."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import kernelpack
from kernelpack.compiler.source_hash import source_files

PACKAGE = Path(kernelpack.__file__).parent
COMPILE = """
import sys
from tests.frontend.kernels import matmul_grouped
from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.options import Options
from kernelpack.target import Target

numbers = ("M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn")
signature = {name: "*fp16" for name in ("a_ptr", "b_ptr", "c_ptr")} | dict.fromkeys(numbers, "i32")
constexprs = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "ACTIVATION": None}
for target in ("cpu:x86-64-v3", "cuda:sm_90a"):
    module = optimise_ttir(ast_to_ttir(matmul_grouped, signature, constexprs))
    compile_ttir(module, Target.parse(target), Options())
loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] == "kernelpack"]
print(*(module.__file__ for module in loaded), sep="\\n")
"""
LOADED_BESIDE = {
    "__init__": "names alone",
    "files": "what is kept, and who may have written it",
    "_C": "launches",
    "pack": "links kernels into libraries for other programs",
    "opgen": "kernelpack.op and the loader of op libraries",
    "runtime": "kernelpack.jit asks which device is active when it launches",
    "testing": "times kernels",
}
"""What `import kernelpack` loads too, which compiling does not ask. Rooms or files, and what they are for."""
ROOMS = ("ir", "layout", "llvm", "analysis", "kernel", "passes", "semantics", "language", "frontend", "backends")
PROGRAMS = {
    "backends/cuda/device/driver.py": {"LIBCUDA"},
    "backends/cuda/assemble/ptx_to_cubin.py": {"CHECK_PTXAS"},
    "backends/cuda/assemble/toolchain.py": {"CHECK_PTXAS", "nvidia"},
    "backends/cpu/device/open.py": {"PERF_MAP"},
    "backends/cpu/facts/features.py": {"CPU_TARGET"},
}
"""Knobs that these rooms may read: which programs and libraries there are, what the target `cpu` stands for, and whether perf
is told of code that is loaded. Versions, options and results that decide code are in keys."""


def test_every_file_that_compiling_imports_is_in_the_hash_of_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=True)
    loaded = {Path(line).relative_to(PACKAGE) for line in done.stdout.splitlines()}
    hashed = {path.relative_to(PACKAGE) for path in source_files(PACKAGE)}
    assert len(loaded & hashed) > 150
    assert sorted(str(path) for path in loaded - hashed if path.parts[0].partition(".")[0] not in LOADED_BESIDE) == []


def test_no_room_below_the_compiler_reads_a_variable_that_decides_code() -> None:
    """They are told by Options, which keys are made of."""
    found: dict[str, set[str]] = {}
    for path in (path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))):
        read = _knobs_read(ast.parse(path.read_text()))
        if read:
            found[path.relative_to(PACKAGE).as_posix()] = read
    assert found == PROGRAMS


def _knobs_read(tree: ast.AST) -> set[str]:
    """The names of knobs that a file uses, and variables that it asks without one."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelpack.knobs"):
            found |= {alias.name for alias in node.names if alias.name.isupper()}
        elif (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "knobs") or (
            isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
        ):
            found.add(node.attr)
    return found
