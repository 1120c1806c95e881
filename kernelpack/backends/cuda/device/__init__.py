"""NVIDIA's driver: which GPUs there are, and how an image is loaded."""
