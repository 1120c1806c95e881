// Where a launch goes: torch's current stream of a GPU, torch's threads on the CPU.
#pragma once

#include <cstdint>

namespace kernelpack {

// Returns what the launcher of a device's backend takes as stream. Throws Error.
using CurrentStream = void* (*)(int device);

// Returns the function for devices of a type. Throws Error where this torch has none.
CurrentStream torch_stream(int32_t device_type);

// How many threads torch gives to work on the CPU.
int64_t num_threads();

}  // namespace kernelpack
