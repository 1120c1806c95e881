"""Stands for triton.tools.link: says what to use instead."""

from kernelpack.tools.ahead_of_time import names_of, refused

__getattr__ = names_of("link")

if __name__ == "__main__":
    raise SystemExit(str(refused("link")))
