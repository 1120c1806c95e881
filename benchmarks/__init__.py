"""Benchmarks: one file a subject, each timed beside its peers in the same run. `python -m benchmarks.attention --device cpu`."""
