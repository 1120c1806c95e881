"""A SIMT emulator: runs the LLVM IR of a CUDA kernel on the CPU, thread by thread, and reports what a GPU would let pass.

Out-of-bounds and misaligned accesses, reads of shared memory that nothing wrote, races, divergent barriers, missing fences and
waits of asynchronous operations, deadlocks: each with the line of Python. `compile_program` in kernelpack.simt.compile makes a
`Program` of a kernel, `Program.run(grid, arguments)` runs it.
"""

from kernelpack.simt.launch import SCHEDULES, Program, Schedule
from kernelpack.simt.translate import Removable

__all__ = ["SCHEDULES", "Program", "Removable", "Schedule"]
