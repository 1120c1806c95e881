"""vLLM on a CPU: `make vllm` serves a model through it with kernels compiled by kernelpack, and checks what it says."""
