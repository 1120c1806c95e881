"""Where caches and the C compiler are, under Triton's names: kernelpack.knobs.cache, .build, .redis; and .amd."""

from __future__ import annotations

import os
from collections.abc import Callable

from kernelpack.knobs.environment import base_knobs, env_bool, env_class, env_int, env_opt_bool, env_opt_str, env_str


class CacheKnobs(base_knobs):
    """`dir` is the folder where compiled kernels are kept, `dump_dir` that of knobs.compilation.dump_ir. `manager_class` keeps files in
    another way (kernelpack.runtime.cache.CacheManager), `remote_manager_class` on another machine. `lock` and `trust_remote` say what is
    loaded that somebody else may have written: see SECURITY.md."""

    home_dir = env_str("TRITON_HOME", lambda _: os.path.expanduser("~/"))
    dir = env_str(
        "KERNELPACK_CACHE_DIR",
        lambda group: group._default_dir(),
        meaning="where compiled kernels are kept; default: TRITON_CACHE_DIR, .triton/cache in TRITON_HOME, or ~/.cache/kernelpack",
    )
    lock = env_opt_str(
        "KERNELPACK_CACHE_LOCK",
        meaning="a file of yours with the SHA-256 of what may be loaded from a cache that others can write, or from another machine; "
        "`kernelpack cache --lock FILE` writes it",
    )
    trust_remote = env_bool(
        "KERNELPACK_TRUST_REMOTE_CACHE",
        meaning="1: kernels that TRITON_REMOTE_CACHE_BACKEND gives are loaded, whoever put them there",
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
