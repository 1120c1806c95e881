"""What kernels are written in: `import kernelpack.language as tl`. Names and meaning are those of triton.language."""

from kernelpack.language import core as core
from kernelpack.language import descriptors as descriptors
from kernelpack.language import extra as extra
from kernelpack.language import math as math
from kernelpack.language import random as random
from kernelpack.language import standard as standard
from kernelpack.language.core import *  # noqa: F403
from kernelpack.language.descriptors import *  # noqa: F403
from kernelpack.language.math import *  # noqa: F403
from kernelpack.language.random import *  # noqa: F403
from kernelpack.language.standard import *  # noqa: F403
