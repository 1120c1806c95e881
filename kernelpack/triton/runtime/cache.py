"""triton.runtime.cache: who keeps compiled kernels, and by what keys."""

from kernelpack import knobs as knobs
from kernelpack.runtime.cache import CacheManager as CacheManager
from kernelpack.runtime.cache import FileCacheManager as FileCacheManager
from kernelpack.runtime.cache import RedisRemoteCacheBackend as RedisRemoteCacheBackend
from kernelpack.runtime.cache import RemoteCacheBackend as RemoteCacheBackend
from kernelpack.runtime.cache import RemoteCacheManager as RemoteCacheManager
from kernelpack.runtime.cache import _base32 as _base32
from kernelpack.runtime.cache import get_cache_manager as get_cache_manager
from kernelpack.runtime.cache import get_dump_manager as get_dump_manager
from kernelpack.runtime.cache import get_override_manager as get_override_manager
from kernelpack.runtime.cache import triton_key as triton_key
from kernelpack.runtime.keys import get_cache_key as get_cache_key
