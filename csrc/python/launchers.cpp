// The table of launchers: kernelpack's own, and those that other packages bring as libraries.
#include "python/launchers.h"

#include <dlfcn.h>

#include <mutex>

#include "kernels/cpu.h"
#include "kernels/cuda.h"

namespace kernelpack {
namespace {

std::mutex mutex;

std::vector<const Launcher*>& table() {
  static std::vector<const Launcher*> known = {&cpu_launcher, &cuda_launcher};
  return known;
}

}  // namespace

const Launcher& launcher_of(const std::string& backend) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Launcher* launcher : table()) {
    if (backend == launcher->backend) return *launcher;
  }
  throw Error("this process has no launcher for the backend " + backend);
}

std::vector<std::string> launchers() {
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<std::string> names;
  for (const Launcher* launcher : table()) names.emplace_back(launcher->backend);
  return names;
}

void add_launcher(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw Error(std::string("a launcher cannot be loaded: ") + dlerror());
  const auto entry = reinterpret_cast<const Launcher* (*)()>(dlsym(opened, "kernelpack_launcher"));
  if (entry == nullptr) throw Error(library + " has no function kernelpack_launcher");
  const std::lock_guard<std::mutex> lock(mutex);
  table().push_back(entry());
}

}  // namespace kernelpack
