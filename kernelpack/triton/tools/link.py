"""triton.tools.link is refused as a whole, and says what to use instead."""

from kernelpack.refusals import refusal, refused_names

__getattr__ = refused_names("triton.tools.link")

if __name__ == "__main__":
    raise SystemExit(str(refusal("triton.tools.link")))
