"""Engines: programs of others that run their Triton kernels on kernelpack, each set up in an environment of its own."""
