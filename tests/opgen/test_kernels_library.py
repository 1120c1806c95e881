"""A library serves hosts without torch: C entry points, the caller's threads, levels by the knob, errors as text."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kernelpack.opgen.build import Built
from kernelpack.target import Target

HOST = r"""
#include <stdio.h>
#include <string.h>

#include "sample_kernels.h"

static int asked, pieces;

static int num_threads(void* context) {
  ++asked;
  return *(int*)context;
}

static void run(void* context, int64_t count, void (*body)(int64_t, int64_t, void*), void* argument) {
  (void)context;
  for (int64_t i = 0; i < count; ++i, ++pieces) body(i, i + 1, argument);
}

enum { kCount = 1 << 20 };
static float x[kCount], out[kCount];

int main(int argc, char** argv) {
  struct sample_kernel* kernel = sample_find_kernel(argv[1], argv[2], 0);
  if (kernel == NULL) {
    printf("%s\n", sample_kernels_error());
    return 0;
  }
  for (int i = 0; i < kCount; ++i) x[i] = (float)i;
  void* in = x;
  void* to = out;
  int32_t n = kCount;
  float factor = 3;
  void* params[] = {&in, &to, &n, &factor};
  const int64_t grid[3] = {kCount / 1024, 1, 1};
  int four = 4;
  struct sample_parallel_for threads = {num_threads, run, &four};
  if (sample_launch_kernel(kernel, 0, argc > 3 ? NULL : &threads, grid, params)) return 1;
  for (int i = 0; i < kCount; ++i) {
    if (out[i] != -3.0f * (float)i) return 2;
  }
  const int64_t bad[3] = {-1, 1, 1};
  if (!sample_launch_kernel(kernel, 0, NULL, bad, params)) return 3;
  printf("asked %d, pieces %d, %s\n", asked, pieces, sample_kernels_error());
  return sample_find_kernel("cpu", "absent", 0) != NULL || strstr(sample_kernels_error(), "no kernel is called absent for cpu:") == NULL;
}
"""


@pytest.fixture(scope="module")
def host(sample_built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program in C, linked to the kernels of the sample ops and to nothing else."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "host.c").write_text(HOST)
    library = sample_built.library
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{sample_built.directory / 'cpp'}", "host.c", str(library)]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}", "-o", "host"], cwd=folder, check=True)
    return folder / "host"


def run(host: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run([host, *arguments], env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout.strip()


def variant_of(built: Built, target: str) -> str:
    """Returns the name of the kernel that negates float32 tensors without bias."""
    found = [
        pack.variant
        for pack in built.packs
        if str(pack.target).startswith(target) and pack.variant.startswith("scale_kernel-f32-none")
    ]
    return next(name for name in found if name.endswith("NEGATE1.any"))


def test_a_host_in_c_gives_its_threads_or_none(host: Path, sample_built: Built) -> None:
    name = variant_of(sample_built, "cpu:")
    message = "grid (-1, 1, 1) is negative or larger than 2^31 - 1 in one dimension"
    assert run(host, "cpu", name) == f"asked 1, pieces 4, {message}"
    assert run(host, "cpu", name, "serial") == f"asked 0, pieces 0, {message}"
    assert run(host, "cpu", name, KERNELPACK_CPU_TARGET="cpu:x86-64-v3").startswith("asked 1")


def test_errors_reach_c_as_text(host: Path, sample_built: Built, tmp_path: Path) -> None:
    name = variant_of(sample_built, "cpu:")
    levels = [str(target) for target in dict.fromkeys(pack.target for pack in sample_built.packs) if target.backend == "cpu"]
    said = run(host, "cpu", name, KERNELPACK_CPU_TARGET="cpu:z80")
    assert said.startswith("KERNELPACK_CPU_TARGET asks for cpu:z80, the library holds ")
    held, cure = said.partition("holds ")[2].split("\n  to fix: ")
    assert set(held.split(", ")) == set(levels)
    assert cure == "set it to one of them, or unset it"
    assert run(host, "npu", name) == "no kernels are built for backend npu"
    missing = run(host, "cuda", name, KERNELPACK_LIBCUDA=str(tmp_path / "libcuda.so.1"))
    assert missing.splitlines() == [
        f"the CUDA driver cannot be opened: {tmp_path}/libcuda.so.1: cannot open shared object file: No such file or directory",
        "  to fix: install the NVIDIA driver on this machine, or set KERNELPACK_LIBCUDA to its libcuda.so.1",
    ]


def test_entry_points_of_kernels_check_what_their_code_assumes(sample_built: Built) -> None:
    """By ctypes, as any language that calls C would: a misaligned pointer is refused before the driver is even opened."""
    library = ctypes.CDLL(str(sample_built.library))
    library.sample_kernels_error.restype = library.sample_target.restype = ctypes.c_char_p
    grid = (0, None, *map(ctypes.c_int64, (1, 1, 1)))
    x, out = (ctypes.c_float * 64)(*range(64)), (ctypes.c_float * 64)()
    target = library.sample_target(b"cpu", 0).decode()
    assert target in {str(pack.target) for pack in sample_built.packs}
    negate = library[f"sample_launch_scale_kernel_f32_none_NEGATE1_any_{Target.parse(target).slug}"]
    assert negate(*grid, x, out, 60, ctypes.c_float(3)) == 0
    assert list(out) == [-3.0 * i for i in range(60)] + [0.0] * 4
    aligned = library.sample_launch_scale_kernel_f32_none_NEGATE1_aligned_cuda_sm_90a
    assert aligned(*grid, ctypes.c_void_p(4096), ctypes.c_void_p(4100), 64, ctypes.c_float(3)) == 1
    assert library.sample_kernels_error().decode().splitlines() == [
        "scale_kernel-f32-none-NEGATE1.aligned assumes out % 16 == 0, which does not hold",
        "  to fix: launch scale_kernel-f32-none-NEGATE1.any, which assumes nothing",
    ]
    assert library.sample_load_kernels(b"scale_", b"cpu", 0) == 0
    assert library.sample_load_kernels(b"absent", b"cpu", 0) == 1
    assert library.sample_kernels_error().decode() == f"no kernel's name begins with absent for {target}"


def test_a_library_that_c_functions_were_called_of_has_its_ops(sample_built: Built) -> None:
    """The file is one: who opened it for its C functions has loaded its ops."""
    said = python(
        """
        import ctypes, sys, torch
        import kernelpack as kp
        library = ctypes.CDLL(sys.argv[1])
        kp.load(sys.argv[2])
        print(torch.ops.sample.scale(torch.ones(2)))
        """,
        sample_built.library,
        sample_built.directory,
    )
    assert said.strip() == "tensor([2., 2.])"


def python(code: str, *arguments: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_knob_forces_a_level_of_torch_ops(sample_built: Built) -> None:
    """A level that the library does not hold is an error of the call; the process lives on."""
    said = python(
        """
        import os, sys, torch
        torch.ops.load_library(sys.argv[1])
        x = torch.arange(6.0)
        try:
            torch.ops.sample.scale(x)
        except RuntimeError as error:
            print("refused:", str(error).splitlines()[0])
        os.environ["KERNELPACK_CPU_TARGET"] = "cpu:x86-64-v3"
        assert torch.equal(torch.ops.sample.scale(x), x * 2)
        """,
        sample_built.library,
        KERNELPACK_CPU_TARGET="cpu:z80",
    )
    assert said.startswith("refused: sample::scale: KERNELPACK_CPU_TARGET asks for cpu:z80, the library holds cpu:")


def test_ops_run_in_threads_and_in_forked_processes(sample_built: Built) -> None:
    said = python(
        """
        import os, sys, threading, torch
        torch.ops.load_library(sys.argv[1])
        torch.set_num_threads(2)
        x = torch.randn(300, 300)

        def work():
            for _ in range(50):
                assert torch.equal(torch.ops.sample.scale(x, negate=True), x * -2)
                assert torch.allclose(torch.ops.sample.row_sum(x), x.sum(-1), atol=1e-4)
                try:
                    torch.ops.sample.scale(x.double())
                except RuntimeError as error:
                    assert "x has dtype float64" in str(error)
                else:
                    raise AssertionError

        threads = [threading.Thread(target=work) for _ in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # torch's own threads do not survive a fork
            work()
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        """,
        sample_built.library,
    )
    assert said.strip() == "0"
