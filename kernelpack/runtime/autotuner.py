"""@autotune and @heuristics, where code written for Triton imports them from."""

from kernelpack.errors import OutOfResources as OutOfResources
from kernelpack.opgen.config import Config as Config
from kernelpack.runtime.autotune import Autotuner as Autotuner
from kernelpack.runtime.autotune import Heuristics as Heuristics
from kernelpack.runtime.autotune import autotune as autotune
from kernelpack.runtime.autotune import heuristics as heuristics
