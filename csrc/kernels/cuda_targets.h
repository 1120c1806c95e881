// Which of a library's targets runs best on a GPU: a function of names and numbers alone.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/cuda_features.h"

namespace kernelpack::cuda {

// A GPU and its driver, as the driver numbers them: 90 for compute capability 9.0, 12040 for CUDA 12.4.
struct Machine {
  int capability;
  int driver;
};

// Returns the version of CUDA whose driver compiles the PTX that is packed for an architecture: for one that is not in the
// table, that of the newest before it.
constexpr int ptx_driver(int architecture) {
  int driver = kFeatures[0].ptx_driver;
  for (const Features& row : kFeatures) {
    if (row.architecture <= architecture) driver = row.ptx_driver;
  }
  return driver;
}

// Returns the architecture of a target such as cuda:sm_90a, 90, or -1; `rest` is set to what follows the number.
inline int architecture_of(const char* target, const char** rest = nullptr) {
  constexpr const char* prefix = "cuda:sm_";
  if (std::strncmp(target, prefix, std::strlen(prefix)) != 0) return -1;
  char* end = nullptr;
  const int architecture = static_cast<int>(std::strtol(target + std::strlen(prefix), &end, 10));
  if (rest != nullptr) *rest = end;
  return architecture;
}

// Returns how well a target such as cuda:sm_90a or cuda:sm_80+ptx runs on a machine, or -1: best is code for exactly this
// architecture and its special features, then code for the same major version, the newest that is not newer than the GPU,
// then PTX, the newest that is not newer than the GPU, where the driver can compile it.
inline int worth(const char* target, const Machine& machine) {
  const char* end = "";
  const int architecture = architecture_of(target, &end);
  if (architecture < 0) return -1;
  const std::string rest = end;
  if (rest == "a") return architecture == machine.capability ? 2000 : -1;
  if (architecture > machine.capability) return -1;
  if (rest.empty()) return architecture / 10 == machine.capability / 10 ? 1000 + architecture : -1;
  return rest == "+ptx" && machine.driver >= ptx_driver(architecture) ? architecture : -1;
}

// Returns the index of the target that runs best on a machine, or -1 if none runs.
inline int choose_target(const char* const* targets, int count, const Machine& machine) {
  int best = -1;
  for (int i = 0; i < count; ++i) {
    const int found = worth(targets[i], machine);
    if (found >= 0 && (best < 0 || found > worth(targets[best], machine))) best = i;
  }
  return best;
}

}  // namespace kernelpack::cuda
