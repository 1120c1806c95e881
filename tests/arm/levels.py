"""Prints the best level of this CPU, as Python finds it."""

from kernelpack.backends.cpu.facts.features import runnable

print(runnable()[0])
