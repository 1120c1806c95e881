"""triton.tools.compile is refused as a whole, and says what to use instead."""

from kernelpack.refusals import refusal, refused_names

__getattr__ = refused_names("triton.tools.compile")

if __name__ == "__main__":
    raise SystemExit(str(refusal("triton.tools.compile")))
