"""triton._C.libtriton.ir: ttir as host code walks it; what makes and changes MLIR is refused."""

from kernelpack.refusals import refused_names
from kernelpack.tools.ir_view import block as block
from kernelpack.tools.ir_view import context as context
from kernelpack.tools.ir_view import load_dialects as load_dialects
from kernelpack.tools.ir_view import module as module
from kernelpack.tools.ir_view import operation as operation
from kernelpack.tools.ir_view import region as region
from kernelpack.tools.ir_view import value as value

__getattr__ = refused_names(__name__)
