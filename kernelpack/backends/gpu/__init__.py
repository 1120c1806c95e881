"""What GPUs of all vendors share: the ttg dialect, layouts of tiles, shared memory, barriers."""
