"""Functions of math for vectors of any length: exponentials, float8, directed rounding, libdevice."""
