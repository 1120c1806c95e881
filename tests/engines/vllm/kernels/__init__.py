"""vLLM's Triton kernels that its CPU platform replaces by C++: called by vLLM's own launchers on CPU tensors, against torch."""
