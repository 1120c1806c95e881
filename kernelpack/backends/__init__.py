"""Backends: from ttir to an image that a device runs. Third parties join by the entry point "kernelpack.backends"."""
