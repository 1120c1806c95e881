// Streams and threads of torch.
#include "ops/stream.h"

#include <dlfcn.h>
#include <torch/csrc/stable/c/shim.h>

#include "kernels/cpu.h"
#include "ops/shim.h"

namespace kernelpack {
namespace {

int threads_of(void* /*context*/) {
  return static_cast<int>(num_threads());
}

void run(void* /*context*/, int64_t count, void (*body)(int64_t, int64_t, void*), void* argument) {
  shim(torch_parallel_for(0, count, 1, body, argument), "running a kernel on its threads");
}

const ParallelFor kTorchThreads = {threads_of, run, nullptr};

AOTITorchError threads_of_torch(int32_t /*device*/, void** stream) {
  *stream = const_cast<ParallelFor*>(&kTorchThreads);
  return 0;
}

}  // namespace

int64_t num_threads() {
  uint32_t count = 1;
  return torch_get_num_threads(&count) == 0 ? count : 1;
}

CurrentStream torch_stream(const Launcher& launcher, int32_t device_type) {
  if (launcher.takes_threads) return threads_of_torch;
  if (device_type != aoti_torch_device_type_cuda()) {
    throw Error(std::string("torch's stable interface has no current stream for the devices of the backend ") +
                launcher.backend + "\n  to fix: give its launcher current_stream");
  }
  // it lives in libtorch_cuda, which this library does not link to: a torch without CUDA loads it too
  void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  void* symbol = library == nullptr ? nullptr : dlsym(library, "aoti_torch_get_current_cuda_stream");
  if (symbol == nullptr) {
    throw Error(
        "this torch has no CUDA support, so its current stream cannot be found\n  to fix: install a torch that was built for "
        "CUDA");
  }
  return reinterpret_cast<CurrentStream>(symbol);
}

}  // namespace kernelpack
