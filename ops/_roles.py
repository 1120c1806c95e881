"""What kernels for sm_90a that give their warps roles have in common: an early beginning, places in rings of tiles, tiles cut in two."""

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def next_stage(stage, phase, STAGES: tl.constexpr):
    """Returns the place behind `stage` in a ring, and the parity of its phase there."""
    stage += 1
    if stage == STAGES:
        stage = 0
        phase ^= 1
    return stage, phase


@kp.jit
def halves(x):
    """Returns the left and the right half of a tile; no thread gives anything away."""
    return tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, x.shape[1] // 2]), [0, 2, 1]))


@kp.jit
def begin_early():
    """Stands where a kernel is set up and has not touched memory: it may get there before the launch ahead of it has ended, and the
    launch behind it may before this one has (launch_pdl in its config)."""
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()
