"""What packages import from Triton is here, or refused with a reason. The tables are what their sources import and ask by attribute."""

from __future__ import annotations

import importlib
from functools import reduce

import pytest

from kernelpack.errors import RefusedNameError

_TORCH = {
    "": "Config JITFunction __version__ autotune backends cdiv heuristics jit knobs language next_power_of_2 runtime testing tools",
    "backends": "BaseBackend backends",
    "backends.compiler": "GPUTarget",
    "compiler": "CompiledKernel compiler",
    "compiler.compiler": "ASTSource make_backend triton_key",
    "compiler.errors": "CompilationError",
    "language": "constexpr core dtype extra load make_tensor_descriptor math store tensor",
    "language.core": "_unwrap_if_constexpr dtype view",
    "language.extra": "cuda libdevice",
    "language.standard": "_log2",
    "profiler": "activate deactivate finalize scope start",
    "runtime": "driver jit",
    "runtime.autotuner": "Autotuner Config Heuristics OutOfResources PTXASError autotune",
    "runtime.cache": "knobs triton_key",
    "runtime.driver": "driver",
    "runtime.interpreter": "InterpretedFunction",
    "runtime.jit": "JITFunction KernelInterface",
    "testing": "Benchmark do_bench get_dram_gbps get_max_simd_tflops get_max_tensorcore_tflops nvsmi",
    "tools.disasm": "extract",
    "tools.tensor_descriptor": "TensorDescriptor",
}
_VLLM = {
    "": "Config autotune cdiv constexpr_function heuristics jit knobs next_power_of_2 reinterpret runtime set_allocator testing",
    "backends": "backends",
    "knobs": "autotuning compilation runtime",
    "language": "constexpr target_info tensor dtype pointer_type PropagateNan TRITON_MAX_TENSOR_NUMEL",
    "experimental": "gluon",
    "language.extra": "libdevice",
    "language.extra.cuda": "gdc_launch_dependents gdc_wait",
    "language.extra.libdevice": "exp fast_expf rint round tanh",
    "runtime.autotuner": "Autotuner",
    "runtime.cache": "FileCacheManager",
    "runtime.jit": "JITFunction compute_cache_key serialize_specialization_data",
    "tools.ragged_tma": "create_ragged_descriptor load_ragged store_ragged",
    "tools.tensor_descriptor": "TensorDescriptor",
}
IMPORTED = {
    "torch 2.10 to 2.15": _TORCH,
    "vLLM": _VLLM,
    "SGLang": {
        "": "autotune cdiv heuristics jit next_power_of_2 runtime set_allocator testing",
        "compiler.compiler": "CompiledKernel get_cache_manager",
        "language": "extra math",
        "language.extra": "libdevice",
        "language.extra.cuda": "gdc_launch_dependents gdc_wait libdevice",
        "runtime.cache": "CacheManager FileCacheManager get_cache_key get_cache_manager",
        "runtime.driver": "driver",
        "testing": "Benchmark do_bench do_bench_cudagraph perf_report",
        "tools.tensor_descriptor": "TensorDescriptor",
    },
    "FlashInfer": {
        "": "cdiv jit next_power_of_2 runtime testing",
        "testing": "Benchmark do_bench perf_report",
        "tools.disasm": "extract get_sass",
        "tools.tensor_descriptor": "TensorDescriptor",
    },
    "Liger-Kernel": {
        "language.extra.cuda.libdevice": "rsqrt tanh",
        "language.extra.libdevice": "rsqrt tanh",
        "language.math": "rsqrt tanh",
        "runtime.cache": "FileCacheManager get_cache_manager",
        "tools.tensor_descriptor": "TensorDescriptor",
    },
    "flash-linear-attention": {
        "language.extra.libdevice": "exp log tanh",
        "language.math": "tanh",
        "runtime": "driver",
        "runtime.autotuner": "Autotuner autotune",
        "runtime.cache": "knobs",
        "testing": "Benchmark do_bench perf_report",
    },
    "transformers": {"": "cdiv jit next_power_of_2", "language": "constexpr dot float8e4nv load store"},
    "bitsandbytes": {"": "Config autotune cdiv heuristics jit", "language": "constexpr"},
    "Helion": {
        "compiler.compiler": "CompiledKernel make_backend",
        "language.core": "builtin constexpr tensor",
        "language.extra.cuda.utils": "num_threads num_warps",
        "runtime.errors": "OutOfResources",
        "runtime.jit": "JITFunction JitFunctionInfo",
        "testing": "do_bench",
    },
    "tools that compile ahead": {
        "_C.libtriton": "get_cache_invalidating_env_vars",
        "backends.compiler": "BaseBackend GPUTarget Language",
        "backends.driver": "DriverBase GPUDriver",
        "backends.nvidia.compiler": "CUDABackend CUDAOptions get_ptxas",
        "backends.nvidia.driver": "CudaDriver",
        "compiler": "ASTSource CompiledKernel LazyDict compile get_cache_key make_backend",
        "compiler.compiler": "CompiledKernel get_cache_invalidating_env_vars get_cache_key get_cache_manager",
        "errors": "TritonError",
        "runtime.build": "compile_module_from_src",
        "runtime.jit": "MockTensor compute_cache_key serialize_specialization_data",
        "tools.mxfp": "MXFP4Tensor MXScaleTensor",
    },
}
"""Names by the package that imports them, and the module under `triton`."""

ASKED = (
    "knobs.autotuning.print", "knobs.cache.dir", "knobs.compilation.listener", "knobs.nvidia.ptxas", "knobs.runtime.add_stages_inspection_hook",
    "knobs.runtime.jit_cache_hook", "knobs.runtime.jit_post_compile_hook", "knobs.runtime.launch_enter_hook.calls",
    "language.core.view", "language.extra.libdevice.tanh", "language.math.exp2", "runtime.driver.active.get_current_device",
    "runtime.driver.active.get_current_stream", "runtime.driver.active.get_current_target", "runtime.driver.active.get_device_interface",
    "runtime.driver.active.utils.get_device_properties", "runtime.driver.default", "runtime.driver.reset_active", "runtime.driver.set_active",
    "backends.backends", "compiler.compiler.make_backend", "testing.do_bench", "tools.tensor_descriptor",
)  # fmt: skip
"""What they ask as attributes of `triton`, with nothing but `import triton`."""

REFUSED = {
    "torch": ("import {}.profiler.language",),
    "tools that make MLIR": ("from {}._C.libtriton.ir import builder", "from {}._C.libtriton import passes"),
    "torch, for NVSHMEM": ("from {}.language.core import extern", "from {}.language.core import extern_elementwise"),
    "tools that compile ahead": (
        "from {}.compiler import IRSource",
        "from {}.compiler.compiler import IRSource",
        "from {}.compiler.code_generator import ast_to_ttir",
        "from {}.language.semantic import TritonSemantic",
        "from {}.backends.nvidia.driver import CudaLauncher",
        "from {}.tools.compile import compile_kernel",
    ),
}
ABSENT = (
    "from {}.backends.compiler import AttrsDescriptor", "from {}.compiler.compiler import AttrsDescriptor", "import {}.fb.build",
    "import {}.language.extra.tlx", "import {}.ops.matmul", "import {}.tools.experimental_descriptor",
    "from {}.language.extra.cuda import experimental_device_tensormap_create1d", "from {}.runtime.errors import IntelGPUError",
)  # fmt: skip
"""What they try, and Triton 3.6 does not have: they go on without it."""


def rows() -> list[tuple[str, str, str]]:
    return [(who, module, names) for who, modules in IMPORTED.items() for module, names in modules.items()]


@pytest.mark.parametrize(("who", "module", "names"), rows(), ids=[f"{who}: {module}" for who, module, _ in rows()])
def test_what_a_package_imports_is_there(who: str, module: str, names: str) -> None:
    found = importlib.import_module(f"kernelpack.triton.{module}".rstrip("."))
    assert [name for name in names.split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("path", ASKED)
def test_what_is_asked_as_an_attribute_is_there(path: str) -> None:
    triton = importlib.import_module("kernelpack.triton")
    reduce(getattr, path.split("."), triton)


@pytest.mark.parametrize("statement", [statement for statements in REFUSED.values() for statement in statements])
def test_what_has_no_meaning_here_is_refused_with_the_reason(statement: str) -> None:
    with pytest.raises(RefusedNameError, match=r"(?s)^triton\.\S+ .*\n  to fix: "):
        exec(statement.format("kernelpack.triton"))


@pytest.mark.parametrize("statement", ABSENT)
def test_what_triton_does_not_have_is_absent(statement: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(statement.format("kernelpack.triton"))
    assert not isinstance(caught.value, RefusedNameError)
