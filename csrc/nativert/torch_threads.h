// torch's threads, for code that does not link to torch: found in the libtorch_cpu that the process has loaded.
#pragma once

#include <dlfcn.h>

#include "kernels/cpu.h"

namespace kernelpack {

class TorchThreads {
 public:
  TorchThreads() {
    void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    if (torch == nullptr) return;
    parallel_for_ = reinterpret_cast<ParallelForFunction>(dlsym(torch, "torch_parallel_for"));
    get_num_threads_ = reinterpret_cast<NumThreadsFunction>(dlsym(torch, "torch_get_num_threads"));
  }
  // Returns nullptr, which means the calling thread alone, where there is no torch.
  ParallelFor* get() { return parallel_for_ != nullptr && get_num_threads_ != nullptr ? &threads_ : nullptr; }

 private:
  using Body = void (*)(int64_t begin, int64_t end, void* argument);
  using ParallelForFunction = int32_t (*)(int64_t begin, int64_t end, int64_t grain, Body body, void* argument);
  using NumThreadsFunction = int32_t (*)(uint32_t* count);

  static int num_threads(void* self) {
    uint32_t count = 1;
    return static_cast<TorchThreads*>(self)->get_num_threads_(&count) == 0 ? static_cast<int>(count) : 1;
  }
  static void run(void* self, int64_t count, Body body, void* argument) {
    if (static_cast<TorchThreads*>(self)->parallel_for_(0, count, 1, body, argument) != 0)
      throw Error("torch's threads failed");
  }

  ParallelForFunction parallel_for_ = nullptr;
  NumThreadsFunction get_num_threads_ = nullptr;
  ParallelFor threads_{num_threads, run, this};
};

inline ParallelFor* torch_threads() {
  static TorchThreads threads;
  return threads.get();
}

}  // namespace kernelpack
