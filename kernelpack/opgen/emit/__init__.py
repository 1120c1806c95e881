"""A planned library becomes C++ and Python: dispatch tables, host functions, fakes."""
