"""triton.knobs is kernelpack.knobs itself: programs set names of the module, such as propagate_env."""

import sys

from kernelpack import knobs

sys.modules[__name__] = knobs
