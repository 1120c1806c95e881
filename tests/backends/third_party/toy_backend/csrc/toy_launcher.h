// The toy backend's launcher.
#pragma once

#include "kernels/kernel.h"

namespace toy {

extern const kernelpack::Launcher launcher;

}  // namespace toy
