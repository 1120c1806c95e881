"""opgen: @kp.op host functions become C++ ops, fake kernels and dispatch tables."""
