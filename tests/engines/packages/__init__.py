"""Packages of Triton kernels on a CPU: `make packages` calls them, as PyPI has them, with kernelpack as Triton, and writes a table."""
