"""triton.tools.ragged_tma: segments of a tensor's axis, by tensor descriptors."""

from kernelpack.tools.ragged_tma import atomic_add_ragged as atomic_add_ragged
from kernelpack.tools.ragged_tma import create_ragged_descriptor as create_ragged_descriptor
from kernelpack.tools.ragged_tma import load_ragged as load_ragged
from kernelpack.tools.ragged_tma import store_ragged as store_ragged
