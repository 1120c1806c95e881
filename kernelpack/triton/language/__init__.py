"""triton.language: what kernels are written in."""

from kernelpack.kernel.aggregates import aggregate_replace as aggregate_replace
from kernelpack.kernel.aggregates import must_use_result as must_use_result
from kernelpack.kernel.structured_types import constexpr_type as constexpr_type
from kernelpack.kernel.structured_types import tuple_type as tuple_type
from kernelpack.kernel.tuples import tuple as tuple
from kernelpack.kernel.types import TRITON_MAX_TENSOR_NUMEL as TRITON_MAX_TENSOR_NUMEL
from kernelpack.kernel.types import const as const
from kernelpack.kernel.types import pi32_t as pi32_t
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
from kernelpack.triton.language import core as core
from kernelpack.triton.language import extra as extra
from kernelpack.triton.language import math as math
from kernelpack.triton.language import random as random
from kernelpack.triton.language import semantic as semantic
from kernelpack.triton.language import standard as standard
from kernelpack.triton.language import target_info as target_info
