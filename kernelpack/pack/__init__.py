"""Kernel packs as text, their embedding in C++, the lock file, and the build of shared libraries."""
