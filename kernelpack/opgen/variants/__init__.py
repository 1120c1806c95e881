"""Which kernels an op needs, and how its calls find theirs."""
