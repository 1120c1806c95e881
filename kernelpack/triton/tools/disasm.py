"""triton.tools.disasm: SASS, with what the hardware is told beside each instruction."""

from kernelpack.backends.cuda.assemble.sass import extract as extract
from kernelpack.backends.cuda.assemble.sass import get_sass as get_sass
