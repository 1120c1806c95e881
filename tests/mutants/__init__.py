"""Mutants of test kernels: the interpreter and the CPU backend agree on what is left of them. `python -m tests.mutants`."""
