"""triton.runtime.interpreter: kernels run by the interpreter of ttir."""

from kernelpack.runtime.interpreter import InterpretedFunction as InterpretedFunction
from kernelpack.runtime.interpreter import Interpreter as Interpreter
