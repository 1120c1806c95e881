"""The environment of the packages, in build/packages."""

from __future__ import annotations

from tests.engines.environment import Environment

# mamba_ssm has no wheel for torch without CUDA
PACKAGES = Environment("packages", "1.5 GB", building={"MAMBA_FORCE_BUILD": "TRUE", "MAMBA_SKIP_CUDA_BUILD": "TRUE"})
