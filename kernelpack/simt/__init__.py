"""A SIMT emulator: runs the LLVM IR of a CUDA kernel on the CPU, thread by thread, and reports what a GPU would let pass.

Out-of-bounds and misaligned accesses, reads of shared memory that nothing wrote, races, divergent barriers, missing fences and
waits of asynchronous operations, deadlocks: each with the line of Python. Inside `with Emulator("cuda:sm_90a"):` launches
from Python run here. Below it, `compile_program` in kernelpack.simt.compile makes a `Program` of a kernel, and
`Program.run(grid, arguments)` runs it.
"""

from typing import TYPE_CHECKING

from kernelpack.lazy import lazy_names
from kernelpack.simt.launch import SCHEDULES, Program, Schedule
from kernelpack.simt.translate import Removable

if TYPE_CHECKING:
    from kernelpack.simt.emulator import Emulator

__all__ = ["SCHEDULES", "Emulator", "Program", "Removable", "Schedule"]

# only launches need torch
__getattr__ = lazy_names(__name__, {"simt.emulator": ("Emulator",)})
