"""Layouts: linear maps over F2 that say which thread holds which element of a tile, and where it lies in shared memory."""
