// torch.profiler, for code that does not link to torch: found in the libtorch_cpu that the process has loaded. It sees GPUs by
// itself; launches on CPUs are told to it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <type_traits>

namespace kernelpack {

// The part of a thread's profile that a launch takes, by its kernel's name, while this lives. Nothing where nobody profiles.
class ProfiledLaunch {
 public:
  explicit ProfiledLaunch(const char* kernel) {
    const Torch& torch = here();
    if (torch.is_profiling == nullptr || !torch.is_profiling()) [[likely]]
      return;
    if (torch.start == nullptr || torch.end == nullptr || torch.start(kernel, nullptr, nullptr, 0, &part_) != 0)
      part_ = nullptr;
  }
  ~ProfiledLaunch() {
    if (part_ != nullptr) here().end(part_);
  }
  ProfiledLaunch(const ProfiledLaunch&) = delete;
  ProfiledLaunch& operator=(const ProfiledLaunch&) = delete;

 private:
  struct Torch {
    int32_t (*start)(const char* name, void* kwargs, void* const* inputs, uint64_t input_count, void** part) = nullptr;
    int32_t (*end)(void* part) = nullptr;
    bool (*is_profiling)() = nullptr;

    Torch() {
      void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
      if (torch == nullptr) torch = RTLD_DEFAULT;  // linked into the program
      const auto find = [torch](auto& slot, const char* name) {
        slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(torch, name));
      };
      find(start, "aoti_record_function_start");
      find(end, "aoti_record_function_end");
      find(is_profiling, "_ZN2at12hasCallbacksEv");  // at::hasCallbacks(): to start in vain takes twice as long
    }
  };

  static const Torch& here() {
    static const Torch found;
    return found;
  }

  void* part_ = nullptr;
};

}  // namespace kernelpack
