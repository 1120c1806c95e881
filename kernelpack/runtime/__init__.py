"""Launches from Python: argument specialization, compilation on first use, launch."""
