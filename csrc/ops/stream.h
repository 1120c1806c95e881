// Where a launch goes: torch's current stream of a GPU, torch's threads on the CPU.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>

#include "kernels/kernel.h"

namespace kernelpack {

// Writes what the launcher of a device's backend takes as stream. Returns 0, or another number where that failed.
using CurrentStream = AOTITorchError (*)(int32_t device, void** stream);

// Returns the function for a launcher that has none of its own and devices of a type. Throws Error where torch has none.
CurrentStream torch_stream(const Launcher& launcher, int32_t device_type);

// How many threads torch gives to work on the CPU.
int64_t num_threads();

}  // namespace kernelpack
