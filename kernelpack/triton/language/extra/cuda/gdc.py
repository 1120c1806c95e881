"""triton.language.extra.cuda.gdc: programmatic dependent launch."""

from kernelpack.language.extra.cuda import gdc_launch_dependents as gdc_launch_dependents
from kernelpack.language.extra.cuda import gdc_wait as gdc_wait
