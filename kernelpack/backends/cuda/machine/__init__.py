"""What NVIDIA's architectures have: features, matrix instructions, asynchronous copies, tensor maps, the ttng dialect."""
