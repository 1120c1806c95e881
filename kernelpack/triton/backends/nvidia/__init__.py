"""triton.backends.nvidia: what compiles for NVIDIA's GPUs, and drives them."""
