// Opens libcuda.so.1 and finds the functions of Driver.
#include "kernels/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <mutex>

namespace kernelpack::cuda {

OpenDriver the_driver;

namespace {

std::mutex mutex;

void* find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw Error(std::string("the CUDA driver has no ") + name + ": it is older than 12.0\n  to fix: update the driver");
  }
  return symbol;
}

template <class Function>
void bind(Function& member, void* library, const char* name) {
  member = reinterpret_cast<Function>(find(library, name));
}

void forget_driver() {
  DriverState open = DriverState::open;
  the_driver.state.compare_exchange_strong(open, DriverState::of_parent);
}

void open() {
  Driver& table = the_driver.functions;
  const char* chosen = std::getenv("KERNELPACK_LIBCUDA");
  const char* path = chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(std::string("the CUDA driver cannot be opened: ") + dlerror() +
                "\n  to fix: install the NVIDIA driver on this machine, or set KERNELPACK_LIBCUDA to its libcuda.so.1");
  }
  bind(table.Init, library, "cuInit");
  bind(table.GetErrorName, library, "cuGetErrorName");
  bind(table.GetErrorString, library, "cuGetErrorString");
  bind(table.DriverGetVersion, library, "cuDriverGetVersion");
  bind(table.DeviceGet, library, "cuDeviceGet");
  bind(table.DeviceGetName, library, "cuDeviceGetName");
  bind(table.DeviceGetAttribute, library, "cuDeviceGetAttribute");
  bind(table.DevicePrimaryCtxRetain, library, "cuDevicePrimaryCtxRetain");
  bind(table.DevicePrimaryCtxGetState, library, "cuDevicePrimaryCtxGetState");
  bind(table.CtxGetCurrent, library, "cuCtxGetCurrent");
  bind(table.CtxGetDevice, library, "cuCtxGetDevice");
  bind(table.CtxPushCurrent, library, "cuCtxPushCurrent_v2");
  bind(table.CtxPopCurrent, library, "cuCtxPopCurrent_v2");
  bind(table.CtxGetId, library, "cuCtxGetId");
  bind(table.ModuleLoadData, library, "cuModuleLoadData");
  bind(table.ModuleGetFunction, library, "cuModuleGetFunction");
  bind(table.FuncSetAttribute, library, "cuFuncSetAttribute");
  bind(table.StreamIsCapturing, library, "cuStreamIsCapturing");
  bind(table.MemAlloc, library, "cuMemAlloc_v2");
  bind(table.MemsetD8Async, library, "cuMemsetD8Async");
  bind(table.TensorMapEncodeTiled, library, "cuTensorMapEncodeTiled");
  bind(table.LaunchKernelEx, library, "cuLaunchKernelEx");
  table.check(table.Init(0), "cuInit", "starting the CUDA driver");
}

// What to do about the results that people meet.
const char* cure(Result result) {
  switch (result) {
    case 2:
      return "free GPU memory, or use smaller tensors";
    case 100:
      return "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case 209:
    case 222:
      return "the library holds no code for this GPU: build it with the GPU's own --target";
    case 720:
      return "all programs of a cooperative launch run at once: give a grid that the GPU holds, or smaller blocks";
    case 900:
    case 901:
    case 906:
      return "what is loaded before a graph is captured needs nothing during the capture: call warmup first";
    case 700:
    case 715:
    case 716:
      return "the kernel accessed memory it does not own; run it under compute-sanitizer. The process has to be restarted";
    default:
      return nullptr;
  }
}

}  // namespace

void Driver::fail(Result result, const char* function, const std::string& doing) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName == nullptr || GetErrorName(result, &name) != 0 || name == nullptr) name = "an unknown CUresult";
  if (GetErrorString == nullptr || GetErrorString(result, &text) != 0 || text == nullptr) text = "no description";
  std::string message =
      std::string(function) + " failed with " + name + " (" + std::to_string(result) + ", " + text + ") while " + doing;
  if (const char* what = cure(result)) message += std::string("\n  to fix: ") + what;
  throw Error(message);
}

const Driver& open_driver() {
  const std::lock_guard<std::mutex> lock(mutex);
  const DriverState state = the_driver.state.load(std::memory_order_acquire);
  if (state == DriverState::of_parent) {
    throw Error(
        "this process was forked from one that uses CUDA, whose driver does not work in it\n  to fix: start processes by "
        "spawn, "
        "e.g. torch.multiprocessing.set_start_method(\"spawn\"), or fork before the first launch");
  }
  if (state == DriverState::closed) {
    open();
    static const int registered = pthread_atfork(nullptr, nullptr, forget_driver);
    static_cast<void>(registered);
    the_driver.state.store(DriverState::open, std::memory_order_release);
  }
  return the_driver.functions;
}

}  // namespace kernelpack::cuda
