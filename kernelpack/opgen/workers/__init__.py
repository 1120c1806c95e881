"""Kernels of a library compiled in processes of their own."""
