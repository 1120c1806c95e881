"""Offline compilation, where code written for Triton imports it from."""

from kernelpack.runtime.ahead_of_time import ASTSource as ASTSource
from kernelpack.runtime.ahead_of_time import compile as compile
from kernelpack.runtime.ahead_of_time import make_backend as make_backend
from kernelpack.runtime.ahead_of_time import triton_key as triton_key
