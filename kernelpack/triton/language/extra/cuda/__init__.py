"""triton.language.extra.cuda: what only GPUs have."""

from kernelpack.language.extra.cuda import *
from kernelpack.triton.language.extra.cuda import gdc as gdc
from kernelpack.triton.language.extra.cuda import libdevice as libdevice
from kernelpack.triton.language.extra.cuda import utils as utils
