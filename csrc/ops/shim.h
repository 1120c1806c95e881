// Torch's C shim as calls of ops use it: its functions, its error codes as exceptions.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "kernels/kernel.h"
#include "ops/boxed.h"

namespace kernelpack {

// The functions that every call needs, beside each other: by themselves they would be spread over a cache line each. They are
// torch's own, which torch_symbols.cpp finds.
struct alignas(64) TorchFunctions {
  decltype(&aoti_torch_get_sizes) get_sizes;
  decltype(&aoti_torch_get_strides) get_strides;
  decltype(&aoti_torch_get_dim) get_dim;
  decltype(&aoti_torch_get_dtype) get_dtype;
  decltype(&aoti_torch_get_data_ptr) get_data_ptr;
  decltype(&aoti_torch_get_device_index) get_device_index;
  EmptyStrided empty_strided;  // Unboxing's, once a library has found one while it was loaded
  decltype(&aoti_torch_delete_tensor_object) delete_tensor;
};
[[gnu::visibility("hidden")]] extern TorchFunctions torch_functions;

[[noreturn, gnu::cold]] void shim_failed(const char* doing);

// Throws Error unless the call succeeded.
inline void shim(AOTITorchError code, const char* doing) {
  if (code != 0) shim_failed(doing);
}

}  // namespace kernelpack
