"""A planned tile program becomes LLVM IR: loops over vectors, products, reductions, memory."""
