"""A real model served with kernelpack's ops, in Python and in C++ without Python; `make demo` runs all of it."""
