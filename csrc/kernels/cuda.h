// The CUDA launcher: cubins and PTX through the driver API, which is opened when first needed.
#pragma once

#include "kernels/kernel.h"

namespace kernelpack {

extern const Launcher cuda_launcher;

}  // namespace kernelpack
