"""Stands for triton.tools.compile: says what to use instead."""

from kernelpack.tools.ahead_of_time import names_of, refused

__getattr__ = names_of("compile")

if __name__ == "__main__":
    raise SystemExit(str(refused("compile")))
