// Runs the programs of a grid, the last one first, and writes each launch into the file that TOY_LOG names.
#include "toy_launcher.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/cpu.h"

namespace toy {
namespace {

int stream;  // what ops are to launch on

int choose(const char* const* /*targets*/, int /*count*/, int /*device*/, const kernelpack::KernelTraits& /*kernel*/) {
  return 0;
}
std::string describe(int /*device*/) {
  return "toy:one";
}
void load(kernelpack::Kernel& /*kernel*/, int /*device*/) {}
int32_t current_stream(int32_t /*device*/, void** given) {
  *given = &stream;
  return 0;
}

void launch(kernelpack::Kernel& kernel, int /*device*/, void* given, const kernelpack::Grid& grid, void* const* params) {
  if (given != &stream) throw kernelpack::Error("not the toy's stream");
  if (grid.x > 1000) throw kernelpack::Error("toys have at most 1000 programs");
  const auto entry = reinterpret_cast<kernelpack::CpuEntry>(const_cast<void*>(kernel.image));
  const kernelpack::CpuLaunch launch = {
      params, {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y), static_cast<uint32_t>(grid.z)}};
  for (int64_t program = grid.x * grid.y * grid.z; program-- > 0;) entry(program, program + 1, &launch);
  if (const char* path = std::getenv("TOY_LOG")) {
    std::FILE* log = std::fopen(path, "a");
    std::fprintf(log, "%s\n", kernel.name);
    std::fclose(log);
  }
}

}  // namespace

#ifdef TOY_WITHOUT_STREAM
const kernelpack::Launcher launcher = {"toy", choose, describe, load, launch};
#else
const kernelpack::Launcher launcher = {"toy", choose, describe, load, launch, current_stream};
#endif

}  // namespace toy
