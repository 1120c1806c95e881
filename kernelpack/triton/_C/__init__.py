"""triton._C: Triton's compiled part."""
