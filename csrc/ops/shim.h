// Turns the error codes of torch's C shim into exceptions.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "kernels/kernel.h"

namespace kernelpack {

[[noreturn, gnu::cold]] void shim_failed(const char* doing);

// Throws Error unless the call succeeded. torch has printed its own message by then.
inline void shim(AOTITorchError code, const char* doing) {
  if (code != 0) shim_failed(doing);
}

}  // namespace kernelpack
