"""kernelpack: kernels in the Triton language, compiled offline, served as torch.ops."""
