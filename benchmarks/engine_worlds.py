"""The same packages imported twice in one process: once with kernelpack as `triton`, once with Triton itself."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import MagicMock

from kernelpack import as_triton

PACKAGES = ("attorch", "bitsandbytes", "conch", "fla", "flag_gems", "gemlite", "liger_kernel", "mamba_ssm", "torchao", "vllm")


WITHOUT_THEIR_FIRST_LINES = (
    "bitsandbytes", "bitsandbytes.backends", "bitsandbytes.backends.triton", "mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "torchao", "torchao.kernel",
    "vllm", "vllm.model_executor", "vllm.model_executor.warmup", "vllm.utils", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.ops",
    "vllm.v1.sample", "vllm.v1.sample.ops", "vllm.v1.worker", "vllm.v1.worker.gpu", "vllm.v1.worker.gpu.sample",
)  # fmt: skip
"""Packages that register ops when they are imported, which a process can do once, or that need what is absent."""


class World:
    """Packages as they are with one implementation of Triton. Inside of `entered`, they and `triton` are those of this world."""

    def __init__(self, compiler: str) -> None:
        self.ours = compiler == "kernelpack"
        self._modules: dict[str, types.ModuleType] = {}

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        outside = _taken_out()
        if self.ours:
            as_triton.install()
        sys.modules.update(self._modules)
        try:
            yield
        finally:
            self._modules = _taken_out()
            if self.ours:
                as_triton.uninstall()
            sys.modules.update(outside)

    def function(self, place: str) -> Any:
        """Returns what `module:name` is in this world, imported if need be."""
        with self.entered():
            if not self._modules:
                importlib.import_module("triton._C.libtriton")
                _forget_files_of_namespaces(sys.modules)
                _take_first_configs()
                _stand_in_for_what_is_absent()
            module, _, name = place.partition(":")
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            return found


def _taken_out() -> dict[str, types.ModuleType]:
    """Takes the packages and triton out of the modules that are imported, and returns them."""
    roots = (*PACKAGES, "triton")
    taken = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in roots}
    _forget_files_of_namespaces(taken)
    return taken


def _forget_files_of_namespaces(modules: Mapping[str, types.ModuleType]) -> None:
    """Lets `inspect` pass by modules that are a file in the other world: it looks for the source of every module that has `__file__`."""
    for name, module in list(modules.items()):
        if name.startswith("triton") and vars(module).get("__file__", "") is None:
            del module.__file__


def _take_first_configs() -> None:
    """Both compilers run the first config of each search: it is their code that is compared, not what a search happens to choose."""
    tuner = importlib.import_module("triton.runtime.autotuner").Autotuner
    init = tuner.__init__

    def first(self: Any, fn: Any, arg_names: Any, configs: Any, *rest: Any, **named: Any) -> None:
        init(self, fn, arg_names, list(configs)[:1], *rest, **named)

    tuner.__init__ = first


def _stand_in_for_what_is_absent() -> None:
    """vLLM's kernels ask its platform and log, which need dozens of packages: here are the parts that the kernels use."""
    import torch

    platform = MagicMock()
    platform.has_device_capability = lambda number, *_: torch.cuda.get_device_capability() >= divmod(number, 10)
    platform.get_device_capability = lambda *_: torch.cuda.get_device_capability()
    platform.fp8_dtype = lambda: torch.float8_e4m3fn
    platform.is_cuda = platform.is_cuda_alike = lambda: True
    platform.is_rocm = platform.is_xpu = platform.is_cpu = platform.is_tpu = lambda: False
    triton = importlib.import_module("triton")
    language = importlib.import_module("triton.language")
    parts: dict[str, dict[str, Any]] = {
        "vllm.platforms": {"current_platform": platform},
        "vllm.logger": {"init_logger": MagicMock()},
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.utils.gpu_sync_debug": {"gpu_sync_allowed": contextlib.nullcontext},
        "vllm.utils.platform_utils": {"num_compute_units": lambda *_: torch.cuda.get_device_properties().multi_processor_count},
        "vllm.triton_utils": {"triton": triton, "tl": language, "HAS_TRITON": True},
        "vllm.v1.kv_cache_interface": {"KVQuantMode": MagicMock(NONE=0)},
    }
    for name in WITHOUT_THEIR_FIRST_LINES:
        spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            module = sys.modules[name] = types.ModuleType(name)
            module.__spec__ = spec
            module.__path__ = ["/".join([spec.submodule_search_locations[0], *name.split(".")[1:]])]
    for name, names in parts.items():
        module = sys.modules[name] = types.ModuleType(name)
        vars(module).update(names)
