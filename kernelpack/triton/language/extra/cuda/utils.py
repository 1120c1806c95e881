"""triton.language.extra.cuda.utils: a GPU's clock, and who runs a program."""

from kernelpack.language.extra.cuda import globaltimer as globaltimer
from kernelpack.language.extra.cuda import num_threads as num_threads
from kernelpack.language.extra.cuda import num_warps as num_warps
from kernelpack.language.extra.cuda import smid as smid
