"""What kernels are written in: `import kernelpack.language as tl`. Names and meaning are those of triton.language."""

from kernelpack.kernel.aggregates import aggregate_replace as aggregate_replace
from kernelpack.kernel.aggregates import must_use_result as must_use_result
from kernelpack.kernel.structured_types import constexpr_type as constexpr_type
from kernelpack.kernel.structured_types import tuple_type as tuple_type
from kernelpack.kernel.tuples import tuple as tuple
from kernelpack.kernel.types import TRITON_MAX_TENSOR_NUMEL as TRITON_MAX_TENSOR_NUMEL
from kernelpack.kernel.types import const as const
from kernelpack.kernel.types import pi32_t as pi32_t
from kernelpack.language import atomics as atomics
from kernelpack.language import block_pointers as block_pointers
from kernelpack.language import core as core
from kernelpack.language import debugging as debugging
from kernelpack.language import descriptors as descriptors
from kernelpack.language import extra as extra
from kernelpack.language import inline_asm as inline_asm
from kernelpack.language import math as math
from kernelpack.language import random as random
from kernelpack.language import sorting as sorting
from kernelpack.language import standard as standard
from kernelpack.language import target_info as target_info
from kernelpack.language import tile_ops as tile_ops
from kernelpack.language.atomics import *
from kernelpack.language.block_pointers import *
from kernelpack.language.core import *
from kernelpack.language.debugging import *
from kernelpack.language.descriptors import *
from kernelpack.language.inline_asm import *
from kernelpack.language.math import *
from kernelpack.language.random import *
from kernelpack.language.sorting import *
from kernelpack.language.standard import *
from kernelpack.language.tile_ops import *
