// The CUDA launcher: which image fits a device, loading it once, and launching it.
#include "kernels/cuda.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base64.h"
#include "kernels/cuda_driver.h"
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

// Makes a device's primary context current for as long as this lives. A fresh thread has none.
class ContextScope {
 public:
  explicit ContextScope(int ordinal) {
    cuda::Context current = nullptr;
    driver().check(driver().CtxGetCurrent(&current), "cuCtxGetCurrent", "looking for a context");
    if (current != nullptr) {
      cuda::Device device = -1;
      driver().check(driver().CtxGetDevice(&device), "cuCtxGetDevice", "looking for the context's device");
      if (device == device_handle(ordinal)) return;
    }
    driver().check(driver().CtxPushCurrent(primary(ordinal)), "cuCtxPushCurrent", "entering a context");
    pushed_ = true;
  }
  ~ContextScope() {
    cuda::Context popped = nullptr;
    if (pushed_) driver().CtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  // Kept for the life of the process, as torch keeps it.
  static cuda::Context primary(int ordinal) {
    static std::atomic<cuda::Context> contexts[kMaxDevices];
    const cuda::Device device = device_handle(ordinal);
    cuda::Context context = contexts[ordinal].load(std::memory_order_acquire);
    if (context == nullptr) {
      driver().check(driver().DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain",
                     "making a context on CUDA device " + std::to_string(ordinal));
      contexts[ordinal].store(context, std::memory_order_release);
    }
    return context;
  }

  bool pushed_ = false;
};

// How well a target runs on a device: code for exactly this architecture, then code for the same major version, the
// newest that is not newer than the device, then PTX. -1: not at all.
int score(const char* target, int capability) {
  const char* arch = std::strchr(target, ':');
  if (arch == nullptr) return -1;
  ++arch;
  const bool is_ptx = std::strstr(arch, "+ptx") != nullptr || std::strncmp(arch, "ptx_", 4) == 0;
  const char* digits = std::strchr(arch, '_');
  if (digits == nullptr) return -1;
  char* end = nullptr;
  const int number = static_cast<int>(std::strtol(digits + 1, &end, 10));
  if (*end == 'a') return number == capability ? 30'000 + (is_ptx ? 0 : 1) : -1;
  if (number > capability) return -1;
  if (is_ptx) return number;
  if (number / 10 != capability / 10) return -1;
  return (*end == 'f' ? 20'000 : 10'000) + number;
}

int choose(const char* const* targets, int count, int device, bool /*products*/) {
  const int capability = compute_capability(device);
  int best = -1;
  int best_score = -1;
  for (int i = 0; i < count; ++i) {
    const int worth = score(targets[i], capability);
    if (worth > best_score) {
      best = i;
      best_score = worth;
    }
  }
  return best;
}

std::string describe(int device) {
  return "cuda:sm_" + std::to_string(compute_capability(device));
}

std::string text(const Grid& grid) {
  return "(" + std::to_string(grid.x) + ", " + std::to_string(grid.y) + ", " + std::to_string(grid.z) + ")";
}

// What the launcher keeps of a kernel: never freed, since kernels may still run when the process ends.
struct Loaded {
  cuda::KernelHandle handle;
  cuda::TensorMaps tensor_maps;
};

void load(Kernel& kernel, int device) {
  const uint64_t bit = uint64_t{1} << (device & 63);
  if ((kernel.ready_devices.load(std::memory_order_acquire) & bit) != 0) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if ((kernel.ready_devices.load(std::memory_order_relaxed) & bit) != 0) return;
  const std::string doing = std::string("loading ") + kernel.name + " for " + kernel.target;
  const ContextScope context(device);
  auto* loaded = static_cast<Loaded*>(kernel.loaded.load(std::memory_order_relaxed));
  if (loaded == nullptr) {
    cuda::TensorMaps tensor_maps(kernel.tensor_maps);
    cuda::KernelHandle handle = nullptr;
    const auto image = decode(*static_cast<const Base64Image*>(kernel.image));
    cuda::Library library = nullptr;  // never unloaded: kernels may still run when the process ends
    driver().check(driver().LibraryLoadData(&library, image.get(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                   "cuLibraryLoadData", doing);
    driver().check(driver().LibraryGetKernel(&handle, library, kernel.entry), "cuLibraryGetKernel", doing);
    loaded = new Loaded{handle, std::move(tensor_maps)};
    kernel.loaded.store(loaded, std::memory_order_relaxed);
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
  kernel.ready_devices.fetch_or(bit, std::memory_order_release);
}

void launch(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params) {
  if (grid.x < 0 || grid.y < 0 || grid.z < 0 || grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ) {
    throw Error(std::string(kernel.name) + ": grid " + text(grid) + " is outside (2^31 - 1, 65535, 65535)");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  load(kernel, device);
  cuda::LaunchAttribute attributes[2] = {};
  unsigned attribute_count = 0;
  if (kernel.num_ctas > 1) {
    cuda::LaunchAttribute& cluster = attributes[attribute_count++];
    cluster.id = cuda::kClusterDimension;
    cluster.value.cluster[0] = static_cast<unsigned>(kernel.num_ctas);
    cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
  }
  if (kernel.launch_pdl && compute_capability(device) >= kFirstWithDependentLaunch) {
    cuda::LaunchAttribute& early = attributes[attribute_count++];
    early.id = cuda::kProgrammaticStreamSerialization;
    early.value.flag = 1;
  }
  const cuda::LaunchConfig config = {
      {static_cast<unsigned>(grid.x * kernel.num_ctas), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)},
      {static_cast<unsigned>(kernel.num_warps * kThreadsPerWarp), 1, 1},
      static_cast<unsigned>(kernel.shared_memory),
      stream,
      attributes,
      attribute_count};
  const ContextScope context(device);
  const auto& loaded = *static_cast<const Loaded*>(kernel.loaded.load(std::memory_order_relaxed));
  std::vector<cuda::TensorMap> maps(loaded.tensor_maps.size());
  std::vector<void*> with_maps;
  if (!maps.empty()) {
    loaded.tensor_maps.encode(kernel.name, params, stream, maps.data());
    with_maps.assign(params, params + loaded.tensor_maps.parameter_count());
    for (cuda::TensorMap& map : maps) with_maps.push_back(&map);
  }
  const cuda::Result result =
      driver().LaunchKernelEx(&config, loaded.handle, maps.empty() ? const_cast<void**>(params) : with_maps.data(), nullptr);
  if (result != 0) {
    driver().check(result, "cuLaunchKernelEx",
                   std::string("launching ") + kernel.name + " (" + kernel.target + ") with grid " + text(grid) + ", " +
                       std::to_string(kernel.num_warps * kThreadsPerWarp) + " threads, " +
                       std::to_string(kernel.shared_memory) + " bytes of shared memory");
  }
}

}  // namespace

const Launcher cuda_launcher = {"cuda", choose, describe, load, launch};

}  // namespace kernelpack
