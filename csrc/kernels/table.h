// Dispatch tables: which variants a launch can choose from, and the choice. It takes as long among four variants as among four
// hundred: what a call is like becomes indices, and the indices one row.
#pragma once

#include "kernels/kernel.h"

namespace kernelpack {

// A variant of a launch's kernel.
struct Variant {
  Kernel* kernel;             // nullptr: there is none
  const uint8_t* parameters;  // which slots of the launch it takes, in order; nullptr: all
  int32_t parameter_count;
  const int64_t* meta;  // the constexprs that the grid asks for
};

// A variant as a table holds it, by places in the table's lists: pointers would take ten times as many bytes of a library.
struct VariantRow {
  uint32_t kernel;
  uint16_t parameters;
  uint16_t meta;
};

struct ParameterList {
  const uint8_t* slots;  // nullptr: all
  int32_t count;
};

// A point of a launch's space: a dtype for each tensor, a value for each constexpr. Its variants differ in what they assume of
// the call. Bit i stands for the launch's assumption i; where several hold, the first is the best.
struct Point {
  uint64_t assumptions;  // those that there are variants for
  uint32_t first;        // the row of the first one's variant; the others' follow
};

// The variants of one target.
struct TargetVariants {
  const Point* points;
  const VariantRow* rows;
  int row_count;
  Kernel* kernels;  // all of the backend
  const ParameterList* parameters;
  const int64_t* const* metas;

  Variant at(uint32_t row) const {
    const VariantRow& found = rows[row];
    const ParameterList& list = parameters[found.parameters];
    return {&kernels[found.kernel], list.slots, list.count, metas[found.meta]};
  }

  // Returns the best variant of a point, given which of the launch's assumptions hold, if there is one.
  Variant find(int point, uint64_t held) const {
    const Point& place = points[point];
    const uint64_t fitting = place.assumptions & held;
    if (fitting == 0) return {};
    const uint64_t before = (fitting & -fitting) - 1;
    return at(place.first + static_cast<uint32_t>(__builtin_popcountll(place.assumptions & before)));
  }
};

// Bit i is flag i.
template <class... Flags>
constexpr uint64_t bits(Flags... flags) {
  uint64_t result = 0;
  int place = 0;
  ((result |= uint64_t{flags} << place++), ...);
  return result;
}

// The values that were built of a constexpr. Each has a slot of its own: a perfect hash, whose displacements the build found.
template <size_t value_count, size_t bucket_count, size_t slot_count>
struct ValueAxis {
  const char* name;
  int64_t values[value_count];
  uint64_t multiplier;
  uint16_t displacements[bucket_count];
  uint16_t slots[slot_count];

  // Returns which of the values one is, or -1.
  int place(int64_t value) const {
    const uint64_t bits = static_cast<uint64_t>(value);
    const uint64_t hash = (bits ^ bits >> 32) * multiplier;
    const uint64_t bucket = hash >> 52 & (bucket_count - 1);
    const uint16_t place = slots[(hash >> 32 ^ displacements[bucket]) & (slot_count - 1)];
    return values[place] == value ? place : -1;
  }
};

}  // namespace kernelpack
