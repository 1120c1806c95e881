// The part of the CUDA driver API that the launcher uses, found in libcuda.so.1 at run time: nothing links to CUDA.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/kernel.h"

namespace kernelpack::cuda {

using Result = int;  // CUresult
using Device = int;  // CUdevice
struct ContextOpaque;
struct ModuleOpaque;
struct FunctionOpaque;
using Context = ContextOpaque*;
using Module = ModuleOpaque*;
using Function = FunctionOpaque*;

// CUlaunchAttribute and CUlaunchConfig of cuda.h.
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    unsigned cluster[3];
    int flag;
    char size[64];
  } value;
};
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_memory;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

// Numbers of cuda.h.
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kMaxSharedMemoryPerBlockOptin = 97;
constexpr int kMaxDynamicSharedSizeBytes = 8;
constexpr int kCooperative = 2;
constexpr int kClusterDimension = 4;
constexpr int kProgrammaticStreamSerialization = 6;

// The driver's functions, the one of each call first. Members have the driver's names without `cu`.
struct Driver {
  Result (*LaunchKernelEx)(const LaunchConfig* config, void* function, void** params, void** extra);
  Result (*Init)(unsigned flags);
  Result (*GetErrorName)(Result error, const char** name);
  Result (*GetErrorString)(Result error, const char** text);
  Result (*DriverGetVersion)(int* version);
  Result (*DeviceGet)(Device* device, int ordinal);
  Result (*DeviceGetName)(char* name, int size, Device device);
  Result (*DeviceGetAttribute)(int* value, int attribute, Device device);
  Result (*DevicePrimaryCtxRetain)(Context* context, Device device);
  Result (*DevicePrimaryCtxGetState)(Device device, unsigned* flags, int* active);
  Result (*CtxGetCurrent)(Context* context);
  Result (*CtxGetDevice)(Device* device);
  Result (*CtxPushCurrent)(Context context);
  Result (*CtxPopCurrent)(Context* context);
  Result (*CtxGetId)(Context context, uint64_t* id);
  Result (*ModuleLoadData)(Module* module, const void* image);
  Result (*ModuleGetFunction)(Function* function, Module module, const char* name);
  Result (*FuncSetAttribute)(Function function, int attribute, int value);
  Result (*StreamIsCapturing)(void* stream, int* status);
  Result (*MemAlloc)(uint64_t* address, size_t bytes);
  Result (*MemsetD8Async)(uint64_t address, unsigned char value, size_t bytes, void* stream);
  Result (*TensorMapEncodeTiled)(void* map, int element, uint32_t rank, void* address, const uint64_t* sizes,
                                 const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides, int interleave,
                                 int swizzle, int l2_promotion, int fill);

  // Throws Error, with the name of the result and what was being done, unless `result` is CUDA_SUCCESS.
  template <class Doing>
  void check(Result result, const char* function, const Doing& doing) const {
    if (result != 0) fail(result, function, doing);  // a text is made of `doing` only then
  }
  [[noreturn, gnu::cold]] void fail(Result result, const char* function, const std::string& doing) const;
};

enum class DriverState { closed, open, of_parent };
struct alignas(64) OpenDriver {
  std::atomic<DriverState> state{DriverState::closed};
  Driver functions;
};
[[gnu::visibility("hidden")]] extern OpenDriver the_driver;
[[gnu::cold]] const Driver& open_driver();

// Returns the driver, opened and initialised on the first call. Throws Error, each time anew, where there is none, and in
// processes that were forked from one that had opened it.
inline const Driver& driver() {
  return the_driver.state.load(std::memory_order_acquire) == DriverState::open ? the_driver.functions : open_driver();
}

}  // namespace kernelpack::cuda
