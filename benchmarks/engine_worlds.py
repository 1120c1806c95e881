"""The same packages imported twice in one process: once with kernelpack as `triton`, once with Triton itself."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.engine_stand_ins import stand_in_for_what_is_absent
from kernelpack import as_triton

PACKAGES = (
    "attorch", "bitsandbytes", "conch", "fla", "flag_gems", "gemlite", "liger_kernel", "mamba_ssm", "sglang", "torchao", "vllm",
)  # fmt: skip


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
                stand_in_for_what_is_absent()
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
    """Both compilers run the first config of each search: it is their code that is compared, not what a search happens to choose.

    Of gemlite's it is the first that pruning leaves, which adds to a config what its kernels need.
    """
    tuner = importlib.import_module("triton.runtime.autotuner").Autotuner
    init = tuner.__init__

    def first(self: Any, fn: Any, arg_names: Any, configs: Any, *rest: Any, **named: Any) -> None:
        configs = list(configs)
        init(self, fn, arg_names, configs[:1], *rest, **named)
        prune = self.early_config_prune
        if prune is not None and prune.__module__.startswith("gemlite."):
            self.configs = configs
            self.early_config_prune = lambda *given, **more: list(prune(*given, **more))[:1]
            self._bench = lambda *_, **__: [0.0]  # Triton times one config, too

    tuner.__init__ = first
