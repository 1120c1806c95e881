"""Tests of adopting kernels."""
