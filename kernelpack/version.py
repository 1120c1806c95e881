"""The version of kernelpack. `kernelpack.__version__` is that of the language, which kernels' host code compares."""

VERSION = "0.1.0"
LANGUAGE_VERSION = "3.6.0"
"""The version of Triton whose language and host functions these are."""
