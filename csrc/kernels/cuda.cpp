// The CUDA launcher: which image fits a device, loading it once, and launching it.
#include "kernels/cuda.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base64.h"
#include "kernels/cuda_driver.h"
#include "kernels/cuda_targets.h"
#include "kernels/tensor_map.h"

namespace kernelpack {
namespace {

using cuda::driver;

constexpr int kMaxDevices = 64;
constexpr int64_t kPlainSharedMemory = 48 * 1024;  // what a kernel may use without asking
constexpr int kThreadsPerWarp = 32;
constexpr int kFirstWithDependentLaunch = 90;  // compute capability
constexpr int64_t kMaxGridX = INT32_MAX;
constexpr int64_t kMaxGridYZ = 65535;

cuda::Device device_handle(int ordinal) {
  if (ordinal < 0 || ordinal >= kMaxDevices) throw Error("CUDA device number " + std::to_string(ordinal) + " is out of range");
  cuda::Device device = 0;
  driver().check(driver().DeviceGet(&device, ordinal), "cuDeviceGet", "looking for CUDA device " + std::to_string(ordinal));
  return device;
}

int attribute(int which, int ordinal) {
  int value = 0;
  driver().check(driver().DeviceGetAttribute(&value, which, device_handle(ordinal)), "cuDeviceGetAttribute",
                 "asking CUDA device " + std::to_string(ordinal) + " what it is");
  return value;
}

// Returns a device's compute capability, e.g. 90.
int compute_capability(int ordinal) {
  static std::atomic<int> known[kMaxDevices];
  if (ordinal >= 0 && ordinal < kMaxDevices && known[ordinal].load(std::memory_order_relaxed) != 0) {
    return known[ordinal].load(std::memory_order_relaxed);
  }
  const int capability =
      attribute(cuda::kComputeCapabilityMajor, ordinal) * 10 + attribute(cuda::kComputeCapabilityMinor, ordinal);
  known[ordinal].store(capability, std::memory_order_relaxed);
  return capability;
}

// The primary contexts that are known, by device.
std::atomic<cuda::Context> primary_contexts[kMaxDevices];

// Returns a device's primary context, which is kept for the life of the process, as torch keeps it.
cuda::Context primary_context(int ordinal) {
  const cuda::Device device = device_handle(ordinal);
  cuda::Context context = primary_contexts[ordinal].load(std::memory_order_acquire);
  if (context == nullptr) {
    driver().check(driver().DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain",
                   "making a context on CUDA device " + std::to_string(ordinal));
    primary_contexts[ordinal].store(context, std::memory_order_release);
  }
  return context;
}

// Returns whether a context is one of a device's.
bool is_of(cuda::Context context, int ordinal) {
  cuda::Device device = -1;
  if (context == nullptr) return false;
  driver().check(driver().CtxGetDevice(&device), "cuCtxGetDevice", "looking for the context's device");
  if (device != device_handle(ordinal)) return false;
  unsigned flags = 0;
  int is_active = 0;  // a host with a context of its own may have no primary one, and needs none
  if (driver().DevicePrimaryCtxGetState(device, &flags, &is_active) == 0 && is_active != 0) primary_context(ordinal);
  return true;
}

// Makes a context of a device current for as long as this lives: the one that is, or the primary one. A fresh thread has none.
class ContextScope {
 public:
  explicit ContextScope(int ordinal) {
    cuda::Context current = nullptr;
    driver().check(driver().CtxGetCurrent(&current), "cuCtxGetCurrent", "looking for a context");
    const auto is_primary = [&] {
      return static_cast<unsigned>(ordinal) < kMaxDevices && current != nullptr &&
             current == primary_contexts[ordinal].load(std::memory_order_relaxed);
    };
    is_primary_ = is_primary();
    if (is_primary_) return;
    if (is_of(current, ordinal)) {
      is_primary_ = is_primary();
      return;
    }
    driver().check(driver().CtxPushCurrent(primary_context(ordinal)), "cuCtxPushCurrent", "entering a context");
    is_primary_ = pushed_ = true;
  }
  ~ContextScope() {
    cuda::Context popped = nullptr;
    if (pushed_) driver().CtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  // Whether the context is the device's primary one.
  bool is_primary() const { return is_primary_; }

 private:
  bool is_primary_ = false;
  bool pushed_ = false;
};

int driver_version() {
  int version = 0;
  driver().check(driver().DriverGetVersion(&version), "cuDriverGetVersion", "asking the CUDA driver for its version");
  return version;
}

int choose(const char* const* targets, int count, int device, bool /*products*/) {
  return cuda::choose_target(targets, count, {compute_capability(device), driver_version()});
}

std::string describe(int device) {
  return "cuda:sm_" + std::to_string(compute_capability(device));
}

std::string name(int device) {
  char text[256] = "CUDA device";
  driver().check(driver().DeviceGetName(text, sizeof text, device_handle(device)), "cuDeviceGetName",
                 "asking a GPU for its name");
  const int capability = compute_capability(device);
  const int version = driver_version();
  return std::string(text) + " (compute capability " + std::to_string(capability / 10) + "." + std::to_string(capability % 10) +
         ", driver for CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) + ")";
}

std::string text(const Grid& grid) {
  return "(" + std::to_string(grid.x) + ", " + std::to_string(grid.y) + ", " + std::to_string(grid.z) + ")";
}

// What the launcher keeps of a kernel: never freed, since kernels may still run when the process ends.
struct Loaded {
  cuda::KernelHandle handle;
  cuda::TensorMaps tensor_maps;
  std::atomic<uint64_t> ready_devices{0};
  // The kernel in each primary context, where the driver need not look for it; nullptr: known in another context alone.
  std::atomic<cuda::Function> functions[kMaxDevices] = {};
};

// Returns what is kept of a kernel that is ready for a device, else nullptr.
Loaded* ready(const Kernel& kernel, int device) {
  auto* loaded = static_cast<Loaded*>(kernel.loaded.load(std::memory_order_acquire));
  if (loaded == nullptr || static_cast<unsigned>(device) >= kMaxDevices) return nullptr;
  return (loaded->ready_devices.load(std::memory_order_acquire) >> device & 1) != 0 ? loaded : nullptr;
}

Loaded* load_image(const Kernel& kernel, const std::string& doing) {
  cuda::TensorMaps tensor_maps(kernel.tensor_maps);
  cuda::KernelHandle handle = nullptr;
  const auto image = decode(*static_cast<const Base64Image*>(kernel.image));
  cuda::Library library = nullptr;  // never unloaded: kernels may still run when the process ends
  driver().check(driver().LibraryLoadData(&library, image.get(), nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData",
                 doing);
  driver().check(driver().LibraryGetKernel(&handle, library, kernel.entry), "cuLibraryGetKernel", doing);
  return new Loaded{handle, std::move(tensor_maps)};
}

void load(Kernel& kernel, int device) {
  if (ready(kernel, device) != nullptr) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (ready(kernel, device) != nullptr) return;
  const std::string doing = std::string("loading ") + kernel.name + " for " + kernel.target;
  const ContextScope context(device);
  auto* loaded = static_cast<Loaded*>(kernel.loaded.load(std::memory_order_relaxed));
  if (loaded == nullptr) {
    loaded = load_image(kernel, doing);
    kernel.loaded.store(loaded, std::memory_order_release);
  }
  if (kernel.shared_memory > kPlainSharedMemory) {
    const int limit = attribute(cuda::kMaxSharedMemoryPerBlockOptin, device);
    if (kernel.shared_memory > limit) {
      throw Error(std::string(kernel.name) + " needs " + std::to_string(kernel.shared_memory) +
                  " bytes of shared memory, CUDA device " + std::to_string(device) + " has " + std::to_string(limit) +
                  "\n  to fix: build it for this GPU with smaller blocks or fewer stages");
    }
    driver().check(driver().KernelSetAttribute(cuda::kMaxDynamicSharedSizeBytes, static_cast<int>(kernel.shared_memory),
                                               loaded->handle, device_handle(device)),
                   "cuKernelSetAttribute", doing);
  }
  cuda::Function function = nullptr;  // a library's code reaches a context when it is first asked for: now, not in a capture
  driver().check(driver().KernelGetFunction(&function, loaded->handle), "cuKernelGetFunction", doing);
  if (context.is_primary()) loaded->functions[device].store(function, std::memory_order_relaxed);
  loaded->ready_devices.fetch_or(uint64_t{1} << device, std::memory_order_release);
}

// Loads a kernel for a launch. Throws Error where the stream is capturing a graph, into which loading cannot go.
Loaded* load_for(Kernel& kernel, int device, void* stream) {
  {
    const ContextScope context(device);
    int status = 0;
    const cuda::Result result = driver().StreamIsCapturing(stream, &status);
    constexpr cuda::Result kCaptureImplicit = 906;  // another stream captures, and this is the one that waits for all
    if (status != 0 || result == kCaptureImplicit) {
      throw Error(
          std::string(kernel.name) + " is not loaded on CUDA device " + std::to_string(device) +
          ", and nothing can be loaded while a graph is captured\n  to fix: call it once before the capture, or warmup");
    }
    driver().check(result, "cuStreamIsCapturing", std::string("loading ") + kernel.name);
  }
  load(kernel, device);
  return ready(kernel, device);
}

// The attributes of a kernel's launches.
class Attributes {
 public:
  Attributes(const Kernel& kernel, int device) {
    if (kernel.num_ctas > 1) {
      unsigned* cluster = add(cuda::kClusterDimension).cluster;
      cluster[0] = static_cast<unsigned>(kernel.num_ctas);
      cluster[1] = cluster[2] = 1;
    }
    if (kernel.launch_pdl && compute_capability(device) >= kFirstWithDependentLaunch) {
      add(cuda::kProgrammaticStreamSerialization).flag = 1;
    }
    if (kernel.launch_cooperative_grid) add(cuda::kCooperative).flag = 1;
  }
  cuda::LaunchAttribute* data() { return rows_; }
  unsigned count() const { return count_; }

 private:
  decltype(cuda::LaunchAttribute::value)& add(int id) {
    cuda::LaunchAttribute& row = rows_[count_++];
    row.id = id;
    return row.value;
  }

  cuda::LaunchAttribute rows_[3];
  unsigned count_ = 0;
};

// The parameters of a launch with tensor maps behind them. Nothing of it lies on the heap.
class WithTensorMaps {
 public:
  WithTensorMaps(const Kernel& kernel, const cuda::TensorMaps& maps, void* const* params, void* stream) {
    const size_t count = maps.parameter_count();
    if (maps.size() > kMost || count > kMostParameters) throw Error(std::string(kernel.name) + " has too many parameters");
    maps.encode(kernel.name, params, stream, maps_);
    for (size_t i = 0; i < count; ++i) params_[i] = params[i];
    for (size_t i = 0; i < maps.size(); ++i) params_[count + i] = &maps_[i];
  }
  void** data() { return params_; }

 private:
  static constexpr size_t kMost = 16;  // 4 KiB of parameters hold 32
  static constexpr size_t kMostParameters = 512;
  cuda::TensorMap maps_[kMost];
  void* params_[kMost + kMostParameters];
};

[[noreturn]] void grid_refused(const Kernel& kernel, const Grid& grid) {
  throw Error(std::string(kernel.name) + ": grid " + text(grid) + " is outside (2^31 - 1, 65535, 65535)" +
              (kernel.num_ctas > 1 ? ", of which x counts " + std::to_string(kernel.num_ctas) + " blocks a program" : ""));
}

[[noreturn]] void launch_failed(cuda::Result result, const Kernel& kernel, const Grid& grid) {
  driver().fail(result, "cuLaunchKernelEx",
                std::string("launching ") + kernel.name + " (" + kernel.target + ") with grid " + text(grid) + ", " +
                    std::to_string(kernel.num_warps * kThreadsPerWarp) + " threads, " + std::to_string(kernel.shared_memory) +
                    " bytes of shared memory");
}

void launch(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params) {
  if (grid.x < 0 || grid.y < 0 || grid.z < 0 || grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ) {
    grid_refused(kernel, grid);
  }
  const int64_t blocks = grid.x * kernel.num_ctas;
  if (blocks > kMaxGridX) grid_refused(kernel, grid);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  Loaded* loaded = ready(kernel, device);
  if (loaded == nullptr) loaded = load_for(kernel, device, stream);
  Attributes attributes(kernel, device);
  const cuda::LaunchConfig config = {
      {static_cast<unsigned>(blocks), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)},
      {static_cast<unsigned>(kernel.num_warps * kThreadsPerWarp), 1, 1},
      static_cast<unsigned>(kernel.shared_memory),
      stream,
      attributes.data(),
      attributes.count()};
  const ContextScope context(device);
  const cuda::Function known = context.is_primary() ? loaded->functions[device].load(std::memory_order_relaxed) : nullptr;
  void* what = known != nullptr ? static_cast<void*>(known) : static_cast<void*>(loaded->handle);
  cuda::Result result = 0;
  if (loaded->tensor_maps.size() == 0) {
    result = driver().LaunchKernelEx(&config, what, const_cast<void**>(params), nullptr);
  } else {
    WithTensorMaps all(kernel, loaded->tensor_maps, params, stream);
    result = driver().LaunchKernelEx(&config, what, all.data(), nullptr);
  }
  if (result != 0) launch_failed(result, kernel, grid);
}

}  // namespace

const Launcher cuda_launcher = {"cuda", choose, describe, load, launch, nullptr, name};

}  // namespace kernelpack
