// Which config of a kernel is fastest for a call's sizes, as `kernelpack tune` measured it when the library was built.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace kernelpack {

// The configs of one point of a launch's table, and the bins of sizes that choose among them.
struct TunedPoint {
  const int64_t* bounds;        // ascending upper bounds of each key's bins, one key after the other; the last bin has none
  const uint8_t* bound_counts;  // by key
  const uint8_t* choices;       // positions in `configs`, for each combination of bins, the last key's fastest
  const uint8_t* configs;       // the numbers that the op's author knows them by
  int config_count;

  // Returns the position of the config for a call.
  int choose(const int64_t* sizes, int key_count) const {
    int bin = 0;
    const int64_t* bound = bounds;
    for (int key = 0; key < key_count; ++key) {
      const int64_t* end = bound + bound_counts[key];
      bin *= bound_counts[key] + 1;
      for (; bound != end; ++bound) bin += sizes[key] > *bound;
    }
    return choices[bin];
  }
};

// A launch whose config sizes choose.
struct Tuning {
  const TunedPoint* const* const* const* points;  // by backend, target and point; nullptr where there is no choice
};

// Says on stderr which kernels KERNELPACK_CONFIG names that are none of those of a library that have configs to choose among.
void report_unknown_kernels(const char* name_space, const std::set<std::string>& kernels);

}  // namespace kernelpack
