"""Tests of the AMD backend, which only generates code."""
