"""What kernels of engines ask the rest of their package for, which needs dozens of packages: the parts that the kernels use."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import sys
import types
from typing import Any

import torch

WITHOUT_THEIR_FIRST_LINES = (
    "bitsandbytes", "bitsandbytes.backends", "bitsandbytes.backends.triton", "gemlite", "mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton",
    "sglang", "sglang.kernels", "sglang.kernels.ops", "sglang.kernels.ops.activation", "sglang.kernels.ops.attention", "sglang.kernels.ops.attention.dsa",
    "sglang.kernels.ops.diffusion", "sglang.kernels.ops.elementwise", "sglang.kernels.ops.embeddings", "sglang.kernels.ops.gemm",
    "sglang.kernels.ops.kvcache", "sglang.kernels.ops.layernorm", "sglang.kernels.ops.lora", "sglang.kernels.ops.mamba",
    "sglang.kernels.ops.mamba.triton_ops", "sglang.kernels.ops.memory", "sglang.kernels.ops.moe", "sglang.kernels.ops.quantization",
    "sglang.kernels.ops.sampling", "sglang.kernels.ops.speculative", "sglang.srt", "sglang.srt.layers", "torchao", "torchao.kernel",
    "vllm", "vllm.model_executor", "vllm.model_executor.warmup", "vllm.utils", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.ops",
    "vllm.v1.sample", "vllm.v1.sample.ops", "vllm.v1.worker", "vllm.v1.worker.gpu", "vllm.v1.worker.gpu.sample",
)  # fmt: skip
"""Packages that register ops when they are imported, which a process can do once, or that need what is absent."""


class _Off:
    """A setting or a question of which nothing is known here: whatever is asked of it, the answer is False."""

    def __getattr__(self, name: str) -> _Off:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **named: Any) -> bool:
        return False

    def __bool__(self) -> bool:
        return False


class _Part(types.ModuleType):
    """A module or an object with a few names. All others are off."""

    def __init__(self, name: str, **names: Any) -> None:
        super().__init__(name)
        vars(self).update(names)

    def __getattr__(self, name: str) -> _Off:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Off()


def stand_in_for_what_is_absent() -> None:
    """Puts the parts among the modules that are imported. Those of packages that are not installed disturb nobody."""
    for name in WITHOUT_THEIR_FIRST_LINES:
        spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            module = sys.modules[name] = types.ModuleType(name)
            module.__spec__ = spec
            module.__path__ = ["/".join([spec.submodule_search_locations[0], *name.split(".")[1:]])]
    for name, names in {**_of_vllm(), **_of_sglang(), **_of_gemlite()}.items():
        vars(sys.modules.setdefault(name, _Part(name))).update(names)


def _sm(*_: Any) -> tuple[int, int]:
    return torch.cuda.get_device_capability()


def _multiprocessors(*_: Any) -> int:
    return torch.cuda.get_device_properties().multi_processor_count


def _yes(*_: Any) -> bool:
    return True


def _of_vllm() -> dict[str, dict[str, Any]]:
    platform = _Part(
        "platform", is_cuda=_yes, is_cuda_alike=_yes, get_device_capability=_sm, fp8_dtype=lambda: torch.float8_e4m3fn,
        has_device_capability=lambda number, *_: _sm() >= divmod(number, 10),
    )  # fmt: skip
    triton, language = importlib.import_module("triton"), importlib.import_module("triton.language")
    return {
        "vllm.platforms": {"current_platform": platform},
        "vllm.logger": {},
        "vllm.envs": {},
        "vllm.utils.gpu_sync_debug": {"gpu_sync_allowed": contextlib.nullcontext},
        "vllm.utils.platform_utils": {"num_compute_units": _multiprocessors},
        "vllm.triton_utils": {"triton": triton, "tl": language, "HAS_TRITON": True},
        "vllm.v1.kv_cache_interface": {"KVQuantMode": _Part("KVQuantMode", NONE=0)},
    }


def _of_sglang() -> dict[str, dict[str, Any]]:
    """Its code in CUDA C++ is not used."""

    def as_it_is(function: Any = None, **_: Any) -> Any:
        return function if callable(function) else lambda found: found

    ops = "sglang.kernels.ops"
    utils = {
        "is_cuda": _yes,
        "is_sm90_supported": lambda *_: _sm()[0] == 9,
        "cached_triton_kernel": lambda *_, **__: as_it_is,
        "get_device_capability": _sm,
        "get_device_sm": lambda: _sm()[0] * 10 + _sm()[1],
        "get_device_name": lambda *_: torch.cuda.get_device_name(),
        "get_device_core_count": _multiprocessors,
        "ceil_div": lambda x, y: -(-x // y),
        "ceil_align": lambda x, y: -(-x // y) * y,
        "torch_release": tuple(int(part) for part in torch.__version__.split(".")[:2]),
    }
    return {
        "sglang.srt.utils": utils,
        "sglang.srt.utils.common": utils,
        "sglang.srt.utils.custom_op": {"register_custom_op": as_it_is},
        "sglang.srt.utils.patch_torch": {"register_fake_if_exists": lambda _: as_it_is},
        "sglang.srt.environ": {},
        "sglang.srt.layers.deep_gemm_wrapper": {},
        "sglang.srt.layers.dp_attention": {},
        "sglang.srt.layers.deep_gemm_wrapper.configurer": {},
        "sglang.srt.layers.moe.utils": {"get_moe_padding_size": lambda _: 0},
        "sglang.srt.lora.utils": {"LoRABatchInfo": Any},
        "sglang.srt.runtime_context": {"get_platform": lambda: types.SimpleNamespace(is_sm90=_sm()[0] == 9)},
        "sglang.multimodal_gen.runtime.platforms": {"current_platform": _Part("platform", is_cuda=_yes)},
        "sglang.kernels.jit.utils": {
            "is_arch_support_pdl": lambda: _sm()[0] >= 9,
            "cache_once": as_it_is,
            "get_jit_cuda_arch": lambda: types.SimpleNamespace(major=_sm()[0], minor=_sm()[1]),
        },
        f"{ops}.quantization": {"sgl_per_token_quant_fp8": None},
        f"{ops}.quantization.per_tensor_quant_fp8": {},
        f"{ops}.quantization.per_token_group_quant": {},
    }


def _of_gemlite() -> dict[str, dict[str, Any]]:
    return {"gemlite.core": {"GEMLITE_TRITON_CONFIG_CACHE": {}, "GEMLITE_USE_TMA": False}}
