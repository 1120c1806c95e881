"""Where caches and other programs are, under Triton's names: kernelpack.knobs.cache, .build, .redis, .nvidia, .amd."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kernelpack.errors import BuildError
from kernelpack.knobs.environment import base_knobs, env_base, env_bool, env_class, env_int, env_opt_bool, env_opt_str, env_str


class CacheKnobs(base_knobs):
    """`dir` is the folder where compiled kernels are kept, `dump_dir` that of knobs.compilation.dump_ir. `manager_class` keeps files in
    another way (kernelpack.runtime.cache.CacheManager), `remote_manager_class` on another machine."""

    home_dir = env_str("TRITON_HOME", lambda _: os.path.expanduser("~/"))
    dir = env_str(
        "KERNELPACK_CACHE_DIR",
        lambda group: group._default_dir(),
        meaning="where compiled kernels are kept; default: TRITON_CACHE_DIR, .triton/cache in TRITON_HOME, or ~/.cache/kernelpack",
    )
    dump_dir = env_str(
        "TRITON_DUMP_DIR",
        lambda group: group.get_triton_dir("dump"),
        meaning="what TRITON_KERNEL_DUMP writes; default: .triton/dump in TRITON_HOME",
    )
    override_dir = env_str("TRITON_OVERRIDE_DIR", lambda group: group.get_triton_dir("override"))
    manager_class = env_class("TRITON_CACHE_MANAGER", meaning="module:Class of what keeps compiled kernels")
    remote_manager_class = env_class(
        "TRITON_REMOTE_CACHE_BACKEND", meaning="module:Class of what keeps compiled kernels on another machine"
    )

    def get_triton_dir(self, name: str) -> str:
        """Returns a folder inside of Triton's own."""
        return os.path.join(self.home_dir, ".triton", name)

    def _default_dir(self) -> str:
        stated = os.environ.get("TRITON_CACHE_DIR", "")
        if stated:
            return stated
        at_home = "home_dir" in vars(self) or os.environ.get("TRITON_HOME", "")
        return self.get_triton_dir("cache") if at_home else os.path.expanduser("~/.cache/kernelpack")


class BuildKnobs(base_knobs):
    """The C compiler of kernelpack.runtime.build (`cc`), or a function that compiles in its place: `impl(name, source_path, folder,
    library_dirs, include_dirs, libraries, ccflags)` returns the path of the library."""

    cc = env_opt_str("CC", meaning="the C compiler of kernelpack.runtime.build; default: gcc, clang or cc of PATH")
    cudacrt_path = env_opt_str("TRITON_CUDACRT_PATH")
    cudart_path = env_opt_str("TRITON_CUDART_PATH")
    impl: Callable[..., str] | None = None

    @property
    def backend_dirs(self) -> set[str]:
        """Folders that modules are compiled with, headers and libraries."""
        return {folder for folder in (self.cudacrt_path, self.cudart_path) if folder is not None}


class RedisKnobs(base_knobs):
    """The server that kernelpack.runtime.cache.RedisRemoteCacheBackend keeps kernels on."""

    key_format = env_str(
        "TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}", meaning="the keys of kernels kept on a Redis server"
    )
    host = env_str("TRITON_REDIS_HOST", "localhost", meaning="the Redis server")
    port = env_int("TRITON_REDIS_PORT", 6379, meaning="the Redis server's port")


@dataclass(frozen=True)
class NvidiaTool:
    """One of NVIDIA's programs."""

    path: str

    @functools.cached_property
    def version(self) -> str:
        """The release, such as 13.0. Raises BuildError for what is none of NVIDIA's programs."""
        try:
            text = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=True).stdout
            return str(re.findall(r"release (\d+\.\d+)", text)[0])
        except (OSError, subprocess.CalledProcessError, IndexError) as problem:
            raise BuildError(
                f"{self.path} --version does not say one: {problem}", cure="name one of NVIDIA's programs"
            ) from None


class env_nvidia_tool(env_base[Any]):
    """A program of NVIDIA's: set to a path, or a NvidiaTool; None where there is none."""

    def __init__(self, key: str, find: str, *, meaning: str = "") -> None:
        super().__init__(key, lambda _: self._found(find), meaning=meaning)

    def __set__(self, group: Any, value: Any) -> None:
        super().__set__(group, self.parse(os.fspath(value)) if isinstance(value, (str, Path)) else value)

    def parse(self, text: str) -> NvidiaTool:
        if shutil.which(text) is None:
            raise BuildError(f"{text} is no program", cure=f"name one, or unset {self.key}")
        return NvidiaTool(text)

    def text(self, value: NvidiaTool | None) -> str | None:
        return None if value is None else value.path

    @staticmethod
    def _found(find: str) -> NvidiaTool | None:
        toolchain = import_module("kernelpack.backends.cuda.toolchain")
        path = getattr(toolchain, find)()
        return None if path is None else NvidiaTool(str(path))


class NvidiaKnobs(base_knobs):
    """NVIDIA's programs: `ptxas` assembles kernels, with `ptxas_options` too; `nvdisasm` takes them apart."""

    ptxas = env_nvidia_tool(
        "KERNELPACK_PTXAS_PATH",
        "installed_ptxas",
        meaning="the ptxas that assembles kernels; default: that of its wheel, or of PATH. torch.compile sets TRITON_PTXAS_PATH for itself",
    )
    nvdisasm = env_nvidia_tool(
        "KERNELPACK_NVDISASM_PATH",
        "installed_nvdisasm",
        meaning="what takes kernels apart; default: that of its wheel, or of PATH",
    )
    ptxas_options = env_opt_str("PTXAS_OPTIONS", meaning="more options of ptxas")


class AmdKnobs(base_knobs):
    """Switches of Triton's AMD backend. There is none here: they are what they are set to, and change nothing."""

    use_buffer_ops = env_bool("AMDGCN_USE_BUFFER_OPS", True)
    use_buffer_atomics = env_bool("AMDGCN_USE_BUFFER_ATOMICS", True)
    buffer_ops_analyze_small_tensor_range = env_bool("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE")
    dump_amdgcn = env_bool("AMDGCN_ENABLE_DUMP")
    libhip_path = env_opt_str("TRITON_LIBHIP_PATH")
    use_async_copy = env_opt_bool("TRITON_HIP_USE_ASYNC_COPY")
    use_block_pingpong = env_opt_bool("TRITON_HIP_USE_BLOCK_PINGPONG")
    use_in_thread_transpose = env_bool("TRITON_HIP_USE_IN_THREAD_TRANSPOSE")
    scalarize_packed_fops = env_bool("AMDGCN_SCALARIZE_PACKED_FOPS")
