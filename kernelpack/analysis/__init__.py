"""Facts about IR, computed without changing it."""
