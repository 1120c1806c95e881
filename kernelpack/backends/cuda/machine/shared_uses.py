"""What the operations of sm_90a do to shared memory: tiles that are copied or multiplied later, mbarriers, tensor maps."""

from __future__ import annotations

from kernelpack.backends.cuda.machine.dialect import PRODUCT, WAIT
from kernelpack.backends.gpu.machine import SharedUse, SharedUses

MAKE_MAP, TENSOR_MAP_BYTES = "tt.make_tensor_descriptor", 128
"""A tensor map is put together in shared memory, in 128 bytes at a multiple of as many (PTX ISA, tensormap.replace)."""
_LOAD, _STORE = "ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global"
_LIFE = SharedUse(writes=("alloc",), order="mbarrier")
"""One thread begins and ends the lives of mbarriers."""
_ATOMIC = SharedUse(reads=("alloc",))
"""Uses of an mbarrier only meet the ends of its life."""

SHARED_USES: SharedUses = {
    MAKE_MAP: SharedUse(scratch=TENSOR_MAP_BYTES, alignment=TENSOR_MAP_BYTES, order="tensor map"),  # one warp makes them all
    "ttng.init_barrier": _LIFE,
    "ttng.inval_barrier": _LIFE,
    "ttng.barrier_expect": _ATOMIC,
    "ttng.arrive_barrier": _ATOMIC,
    "ttng.wait_barrier": _ATOMIC,
    "ttng.wait_turn": SharedUse(meets=True),
    _LOAD: SharedUse(reads=("barrier",), late_writes=("dst",)),  # waits are for the mbarrier that it arrives at
    WAIT: SharedUse(finishes=PRODUCT),  # products read their tiles until they are waited for
    "ttng.async_tma_store_wait": SharedUse(finishes=_STORE),  # likewise, for the thread that copies
}
