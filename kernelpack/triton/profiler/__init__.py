"""triton.profiler: times of kernels by the scopes that host code names."""

from kernelpack.profiler import DEFAULT_PROFILE_NAME as DEFAULT_PROFILE_NAME
from kernelpack.profiler import activate as activate
from kernelpack.profiler import cpu_timed_scope as cpu_timed_scope
from kernelpack.profiler import deactivate as deactivate
from kernelpack.profiler import enter_scope as enter_scope
from kernelpack.profiler import exit_scope as exit_scope
from kernelpack.profiler import finalize as finalize
from kernelpack.profiler import profile as profile
from kernelpack.profiler import scope as scope
from kernelpack.profiler import start as start
