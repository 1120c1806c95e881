// Where a launch goes: torch's current stream of a GPU, torch's threads on the CPU.
#pragma once

#include "ops/tensor.h"

namespace kernelpack {

// Returns what the launcher of a device's backend takes as stream. Throws Error.
void* current_stream(const Device& device);

// Makes a GPU the current device, as torch does it, for as long as this lives. Does nothing for the CPU.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  DeviceGuardHandle guard_ = nullptr;
};

}  // namespace kernelpack
