// The toy backend's launcher.
#pragma once

#include "kernels/kernel.h"

namespace toy {

extern const kernelpack::Launcher launcher;

// What guards of variants ask.
inline bool is_power_of_two(int64_t number) {
  return number > 0 && (number & (number - 1)) == 0;
}

}  // namespace toy
