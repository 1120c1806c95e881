"""Files that kernelpack writes and reads back: written whole, marked as its own, and read from caches only if this user or root wrote them."""
