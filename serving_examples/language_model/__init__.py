"""A language model served from its GGUF file: the model on kernelpack's ops, the same with plain torch, and what is measured of both."""
