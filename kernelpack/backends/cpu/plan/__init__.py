"""Decides how a kernel runs on a CPU: which tiles are made, which loops are one, how products are blocked."""
