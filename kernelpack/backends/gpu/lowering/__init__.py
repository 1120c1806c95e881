"""ttgir to LLVM IR, as far as GPUs have it in common: one module for a group of operations; a vendor's lowering adds its own."""
