// The weights of a Llama, from its GGUF file, as ops read them.
#pragma once

#include "gguf.h"
#include "package.h"

namespace lm {

// What a package must say of its model (export.py) to be the file's. Throws std::runtime_error for a file that is not served.
std::string description(const Gguf& file);

// All weights, by the names of model.py. `form` is the package's: "dense" ones are bfloat16, others stay quantised. Throws
// std::runtime_error, which names the tensor, where one is missing or cannot be used.
Weights weights_of(const Gguf& file, const std::string& form, at::Device device);

// The dtype of activations.
inline at::ScalarType dtype_of(const std::string& form) {
  return form == "float32" || form == "int8" ? at::kFloat : at::kBFloat16;
}

}  // namespace lm
