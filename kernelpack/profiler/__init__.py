"""Times of kernels by the scopes that host code names, as a tree: sessions, scopes, and a viewer. Names are those of triton.profiler."""

from kernelpack.profiler.scopes import cpu_timed_scope, enter_scope, exit_scope, scope
from kernelpack.profiler.sessions import DEFAULT_PROFILE_NAME, activate, deactivate, finalize, profile, start

__all__ = [
    "DEFAULT_PROFILE_NAME",
    "activate",
    "cpu_timed_scope",
    "deactivate",
    "enter_scope",
    "exit_scope",
    "finalize",
    "profile",
    "scope",
    "start",
]
