"""What all GPUs have in common."""

from __future__ import annotations

MAX_THREADS = 1024
"""The threads that a block may have on every architecture (CUDA C Programming Guide, "Technical Specifications")."""
