// Times the choice of a variant by the tables that a build writes, and by comparing with one variant after another.
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "ops/call.h"

namespace kp = kernelpack;

// What decides: a call's dtype, its constexpr, and whether what the specialised variant assumes holds.
struct Asked {
  kp::DType dtype;
  int64_t value;
  bool aligned;
};

#include "tables.h"  // of an op with so many variants, and what each was built for

namespace {

constexpr kp::DTypeAxis kDTypes = {{kp::DType::float32, 0}, {kp::DType::float16, 1}};

const kp::Kernel* by_tables(const Asked& asked) {
  const int point = kDTypes.place(asked.dtype) * kValueCount + kLaunch0_BLOCK.place(asked.value);
  return kBackends0[0][0].find(point, kp::bits(asked.aligned, true)).kernel;
}

const kp::Kernel* by_comparing(const Asked& asked) {
  const kp::TargetVariants& all = kBackends0[0][0];
  for (int row = 0; row < all.row_count; ++row) {
    const Asked& built = kBuilt[row];
    if (built.dtype == asked.dtype && built.value == asked.value && (asked.aligned || !built.aligned))
      return all.at(static_cast<uint32_t>(row)).kernel;
  }
  return nullptr;
}

// Returns the nanoseconds that a choice takes, each waiting for the one before it.
template <class Choose>
double nanoseconds(const std::vector<Asked>& calls, const Choose& choose) {
  double best = 1e9;
  for (int round = 0; round < 15; ++round) {
    const auto start = std::chrono::steady_clock::now();
    uintptr_t previous = 0;
    for (int pass = 0; pass < 8; ++pass) {
      for (size_t i = 0; i < calls.size(); ++i) previous = reinterpret_cast<uintptr_t>(choose(calls[i ^ (previous & 1)]));
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / (8.0 * static_cast<double>(calls.size())));
  }
  return best;
}

}  // namespace

int main() {
  std::mt19937 random(1);
  std::vector<Asked> calls;
  const int count = kBackends0[0][0].row_count;
  for (int i = 0; i < 4096; ++i) calls.push_back(kBuilt[random() % count]);
  for (const Asked& asked : calls) {
    if (by_tables(asked) != by_comparing(asked)) return 1;
  }
  std::printf("%.3f %.3f\n", nanoseconds(calls, by_tables), nanoseconds(calls, by_comparing));
}
