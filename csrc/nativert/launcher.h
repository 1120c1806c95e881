// Launches CPU kernels in packages of AOTInductor, which load each kernel and its launcher as two libraries and know no
// kernelpack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nativert/torch_threads.h"

namespace kernelpack {

// How AOTInductor passes an argument: an entry of `args` is a tensor's memory, or the address of a number. A Python float is a
// float there, whatever the kernel takes.
enum class Passed : uint8_t { memory, number, narrow_float };

// A run-time parameter of the kernel: its place among all arguments of the kernel's function.
struct Parameter {
  size_t place;
  Passed passed;
};

// Runs all programs of a grid: on torch's threads, or each on its own where they run `together`. `tiled` names a kernel that
// needs the tiles of AMX. Throws Error, which AOTInductor's runtime makes an error of the model's call.
template <size_t count>
void run_from_nativert(const Grid& grid, void** args, void* kernel, double program_ns, bool together, const char* tiled,
                       const Parameter (&parameters)[count]) {
  if (tiled != nullptr) allow_tiles(tiled);
  void* params[count];
  double wide[count];
  for (size_t i = 0; i < count; ++i) {
    void*& given = args[parameters[i].place];
    if (parameters[i].passed == Passed::narrow_float) wide[i] = *static_cast<const float*>(given);
    params[i] = parameters[i].passed == Passed::memory         ? static_cast<void*>(&given)
                : parameters[i].passed == Passed::narrow_float ? static_cast<void*>(&wide[i])
                                                               : given;
  }
  if (together) return run_together_on_cpu(reinterpret_cast<CpuEntry>(kernel), grid, params);
  run_on_cpu(reinterpret_cast<CpuEntry>(kernel), program_ns, torch_threads(), grid, params);
}

}  // namespace kernelpack
