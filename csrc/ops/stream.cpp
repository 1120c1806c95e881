// Streams and threads of torch.
#include "ops/stream.h"

#include <dlfcn.h>
#include <torch/csrc/stable/c/shim.h>

#include "kernels/cpu.h"
#include "ops/shim.h"

namespace kernelpack {
namespace {

int num_threads(void* /*context*/) {
  uint32_t count = 1;
  return torch_get_num_threads(&count) == 0 ? static_cast<int>(count) : 1;
}

void run(void* /*context*/, int64_t count, void (*body)(int64_t, int64_t, void*), void* argument) {
  shim(torch_parallel_for(0, count, 1, body, argument), "running a kernel on its threads");
}

const ParallelFor kTorchThreads = {num_threads, run, nullptr};

using CurrentStream = AOTITorchError (*)(int32_t device, void** stream);

// Lives in libtorch_cuda, which this library does not link to: a torch without CUDA loads it too.
CurrentStream find_current_stream() {
  void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<CurrentStream>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
}

}  // namespace

void* current_stream(const Device& device) {
  if (!device.is_cuda()) return const_cast<ParallelFor*>(&kTorchThreads);
  static const CurrentStream find = find_current_stream();
  if (find == nullptr) {
    throw Error(
        "this torch has no CUDA support, so its current stream cannot be found\n  to fix: install a torch that was built for "
        "CUDA");
  }
  void* stream = nullptr;
  shim(find(device.index, &stream), "looking for the current CUDA stream");
  return stream;
}

DeviceScope::DeviceScope(const Device& device) {
  if (device.is_cuda()) shim(aoti_torch_create_device_guard(device.index, &guard_), "changing the current CUDA device");
}

DeviceScope::~DeviceScope() {
  if (guard_ != nullptr) aoti_torch_delete_device_guard(guard_);
}

}  // namespace kernelpack
