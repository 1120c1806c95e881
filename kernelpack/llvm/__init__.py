"""LLVM: a text emitter for functions, and optimisation and code generation through llvmlite."""
