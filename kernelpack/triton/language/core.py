"""triton.language.core: types, values, and the functions that the rest is made of."""

from kernelpack.kernel.aggregates import aggregate as aggregate
from kernelpack.kernel.aggregates import aggregate_replace as aggregate_replace
from kernelpack.kernel.aggregates import must_use_result as must_use_result
from kernelpack.kernel.builtin import builtin as builtin
from kernelpack.kernel.jit import constexpr_function as constexpr_function
from kernelpack.kernel.structured_types import tuple_type as tuple_type
from kernelpack.kernel.tuples import tuple as tuple
from kernelpack.kernel.types import TRITON_MAX_TENSOR_NUMEL as TRITON_MAX_TENSOR_NUMEL
from kernelpack.kernel.types import const as const
from kernelpack.kernel.types import pi32_t as pi32_t
from kernelpack.language.atomics import *
from kernelpack.language.block_pointers import *
from kernelpack.language.core import *
from kernelpack.language.core import CONSTEXPR_0 as CONSTEXPR_0
from kernelpack.language.core import CONSTEXPR_1 as CONSTEXPR_1
from kernelpack.language.core import _aggregate as _aggregate
from kernelpack.language.core import _unwrap_if_constexpr as _unwrap_if_constexpr
from kernelpack.language.core import get_int_dtype as get_int_dtype
from kernelpack.language.debugging import *
from kernelpack.language.descriptors import *
from kernelpack.language.inline_asm import *
from kernelpack.language.tile_ops import *
from kernelpack.refusals import refused_names

__getattr__ = refused_names(__name__)
