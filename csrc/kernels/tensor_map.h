// Tensor maps: what the hardware's bulk copies (TMA) know of a tensor, as a parameter of a kernel. The launcher fills them in
// at each launch, from the kernel's other parameters and what the compiler recorded
// (kernelpack/backends/cuda/machine/tensor_map.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace kernelpack::cuda {

// CUtensorMap of cuda.h.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

// An integer expression of a kernel's parameters, in postfix form.
class Expression {
 public:
  Expression() = default;
  // Reads e.g. `$3 2 *`: `letters` says how each parameter lies in memory. Throws Error for another text.
  Expression(const std::string& text, const std::string& letters);
  int64_t operator()(void* const* params) const;

 private:
  struct Step {
    char what;      // a letter of a parameter, an operator, or # for a constant
    int64_t value;  // the parameter's number, or the constant
  };
  std::vector<Step> steps_;
};

// Returns new memory of the current context for launches with empty tensors, which have none. Throws Error.
uint64_t padding_memory(const std::string& doing);

// The tensor maps of one kernel.
class TensorMaps {
 public:
  // Reads what the compiler recorded: a line with a letter for each parameter, then a line for each map. Throws Error.
  explicit TensorMaps(const char* text);

  size_t size() const { return rows_.size(); }
  size_t parameter_count() const { return parameter_count_; }
  // Encodes every map for a launch. Throws Error, with sizes and strides, where the hardware cannot describe the tensor.
  // `padding` is what `padding_memory` gave in the current context.
  void encode(const char* kernel, void* const* params, uint64_t padding, void* stream, TensorMap* maps) const;

 private:
  // Innermost axis first, as the driver takes them.
  struct Row {
    std::string text;
    int element = 0;  // CUtensorMapDataType
    int64_t width = 0;
    uint32_t rank = 0;
    Expression base;
    Expression sizes[5];
    Expression strides[4];
    uint32_t box[5] = {};
    int swizzle = 0;  // CUtensorMapSwizzle
    bool pads_with_nan = false;
  };

  static Row parse(const std::string& line, const std::string& letters);
  static void encode(const char* kernel, const Row& row, void* const* params, uint64_t padding, void* stream, TensorMap* map);

  size_t parameter_count_ = 0;
  std::vector<Row> rows_;
};

}  // namespace kernelpack::cuda
