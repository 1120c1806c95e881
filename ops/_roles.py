"""What kernels for sm_90a have in common: an early beginning; where warps have roles, places in rings of tiles, and tiles cut in two."""

from typing import NamedTuple

import kernelpack as kp
import kernelpack.language as tl


class Place(NamedTuple):
    """A slot of a ring of tiles, and the parity by which its barrier tells this round from the one before."""

    slot: tl.tensor
    phase: tl.tensor


@kp.jit
def next_place(place, SLOTS: tl.constexpr):
    """Returns the place after one, in a ring of SLOTS."""
    slot, phase = place.slot, place.phase
    slot += 1
    if slot == SLOTS:
        slot = 0
        phase ^= 1
    return Place(slot, phase)


@kp.jit
def halves(x):
    """Returns the left and the right half of a tile; no thread gives anything away."""
    return tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, x.shape[1] // 2]), [0, 2, 1]))


def early(point):
    """Returns a config's launch_pdl for kernels that begin early: Hopper's can."""
    return True if point.target.arch.startswith("sm_90") else None


@kp.jit
def begin_early():
    """Stands where a kernel is set up and has not touched memory: it may get there before the launch ahead of it has ended, and the
    launch after it may before this one has (launch_pdl in its config)."""
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()
