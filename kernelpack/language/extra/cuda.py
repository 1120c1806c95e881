"""tl.extra.cuda: programmatic dependent launch. A kernel launched with `launch_pdl=True` may start while the launch before it on the
stream still runs."""

from __future__ import annotations

from kernelpack.language.builtin import Generator, builtin

__all__ = ["gdc_launch_dependents", "gdc_wait"]


@builtin
def gdc_wait(*, _generator: Generator) -> None:
    """Waits until the launches that this one depends on have ended: what they wrote can be read afterwards.

    Does nothing where a launch begins only when the one before has ended: before sm_90, on CPUs, without `launch_pdl`.
    """
    _generator.builder.create("gpu.gdc_wait")


@builtin
def gdc_launch_dependents(*, _generator: Generator) -> None:
    """Lets launches that depend on this one begin, once every program has said so or ended. They wait by gdc_wait themselves."""
    _generator.builder.create("gpu.gdc_launch_dependents")
