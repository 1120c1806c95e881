// Dispatch tables: which variants a launch can choose from, and the choice.
#pragma once

#include "kernels/kernel.h"

namespace kernelpack {

// A variant of a launch's kernel.
struct Variant {
  Kernel* kernel;
  uint64_t facts;             // what the code assumes, as bits of the launch's facts
  const uint8_t* parameters;  // which slots of the launch it takes, in order
  int32_t parameter_count;
  const int64_t* meta;  // the constexprs that the grid asks for
};

// The variants of one target. Those of point p are [first[p], first[p + 1]), the one that assumes most first.
struct TargetVariants {
  const uint16_t* first;
  const Variant* variants;

  // Returns the first variant of a point whose facts all hold, or nullptr.
  const Variant* find(int point, uint64_t facts) const {
    for (uint16_t row = first[point]; row < first[point + 1]; ++row) {
      if ((variants[row].facts & ~facts) == 0) return &variants[row];
    }
    return nullptr;
  }
};

}  // namespace kernelpack
