"""triton.testing: timing functions, comparing results, what a GPU can do at most."""

from kernelpack.testing import Benchmark as Benchmark
from kernelpack.testing import Mark as Mark
from kernelpack.testing import assert_close as assert_close
from kernelpack.testing import do_bench as do_bench
from kernelpack.testing import do_bench_cudagraph as do_bench_cudagraph
from kernelpack.testing import get_dram_gbps as get_dram_gbps
from kernelpack.testing import get_max_simd_tflops as get_max_simd_tflops
from kernelpack.testing import get_max_tensorcore_tflops as get_max_tensorcore_tflops
from kernelpack.testing import nvsmi as nvsmi
from kernelpack.testing import perf_report as perf_report
