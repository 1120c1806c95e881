// The CUDA launcher: which image fits a device, loading it once, and launching it.
#include "kernels/cuda.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda_driver.h"
#include "kernels/cuda_targets.h"
#include "kernels/tensor_map.h"

namespace kernelpack {
namespace {

using cuda::driver;

constexpr int kMaxDevices = 64;
constexpr int64_t kPlainSharedMemory = 48 * 1024;  // what a kernel may use without asking
constexpr int kThreadsPerWarp = 32;
constexpr int kFirstWithDependentLaunch = 90;  // architecture: kernels for others do not wait for the launch before
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

inline cuda::Context current_context(const cuda::Driver& cuda) {
  cuda::Context current = nullptr;
  cuda.check(cuda.CtxGetCurrent(&current), "cuCtxGetCurrent", "looking for a context");
  return current;
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
  explicit ContextScope(int ordinal) : context_(current_context(driver())) {
    if (is_of(context_, ordinal)) {
      is_primary_ = context_ == primary_contexts[ordinal].load(std::memory_order_acquire);
      return;
    }
    context_ = primary_context(ordinal);
    driver().check(driver().CtxPushCurrent(context_), "cuCtxPushCurrent", "entering a context");
    is_primary_ = pushed_ = true;
  }
  ~ContextScope() {
    cuda::Context popped = nullptr;
    if (pushed_) driver().CtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  cuda::Context context() const { return context_; }
  // Whether the context is the device's primary one.
  bool is_primary() const { return is_primary_; }

 private:
  cuda::Context context_;
  bool is_primary_ = false;
  bool pushed_ = false;
};

int driver_version() {
  int version = 0;
  driver().check(driver().DriverGetVersion(&version), "cuDriverGetVersion", "asking the CUDA driver for its version");
  return version;
}

int choose(const char* const* targets, int count, int device, const KernelTraits& /*kernel*/) {
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

// A kernel in a context: what launches read fills one cache line. Never freed, since kernels may still run when the process
// ends.
struct alignas(64) Ready {
  cuda::Function function = nullptr;
  int64_t most_x = 0;  // programs along x
  unsigned num_ctas = 1;
  unsigned threads = 0;
  unsigned shared_memory = 0;
  unsigned attribute_count = 0;
  uint64_t padding = 0;  // what tensor maps show in place of empty tensors
  cuda::Context context = nullptr;
  cuda::LaunchAttribute attributes[3];
};

// What the launcher keeps of a kernel. Modules belong to contexts: there is one for each, where a library for all
// (cuLibraryLoadData) takes 16 us longer to reach the first.
struct Loaded {
  std::atomic<const Ready*> primary[kMaxDevices] = {};
  cuda::TensorMaps tensor_maps;
  // In contexts that hosts made themselves, by the number that the driver gives each and no other; under `loading`.
  std::vector<std::pair<uint64_t, const Ready*>> others;
};

std::mutex loading;

Loaded* loaded_of(const Kernel& kernel) {
  return static_cast<Loaded*>(kernel.loaded.load(std::memory_order_acquire));
}

// Returns a kernel in the context of a scope, or nullptr if it is not loaded there. Under `loading`.
const Ready* find(const Kernel& kernel, int device, const ContextScope& scope, uint64_t context_id) {
  const Loaded* loaded = loaded_of(kernel);
  if (loaded == nullptr) return nullptr;
  if (scope.is_primary()) return loaded->primary[device].load(std::memory_order_relaxed);
  for (const auto& [id, ready] : loaded->others) {
    if (id == context_id) return ready;
  }
  return nullptr;
}

void add_attributes(const Kernel& kernel, Ready& ready) {
  const auto add = [&ready](int id) -> auto& {
    cuda::LaunchAttribute& row = ready.attributes[ready.attribute_count++];
    row = {};
    row.id = id;
    return row.value;
  };
  if (kernel.num_ctas > 1) {
    unsigned* cluster = add(cuda::kClusterDimension).cluster;
    cluster[0] = static_cast<unsigned>(kernel.num_ctas);
    cluster[1] = cluster[2] = 1;
  }
  if (kernel.launch_pdl && cuda::architecture_of(kernel.target) >= kFirstWithDependentLaunch) {
    add(cuda::kProgrammaticStreamSerialization).flag = 1;
  }
  if (kernel.launch_cooperative_grid) add(cuda::kCooperative).flag = 1;
}

// Loads a kernel into the current context. Its code gets there at once: not in a capture, which a first launch may be in.
std::unique_ptr<Ready> load_here(const Kernel& kernel, const Loaded& loaded, int device, cuda::Context context) {
  const std::string doing = std::string("loading ") + kernel.name + " for " + kernel.target;
  const cuda::Driver& cuda = driver();
  auto ready = std::make_unique<Ready>();
  if (kernel.shared_memory > kPlainSharedMemory) {
    const int limit = attribute(cuda::kMaxSharedMemoryPerBlockOptin, device);
    if (kernel.shared_memory > limit) {
      throw Error(std::string(kernel.name) + " needs " + std::to_string(kernel.shared_memory) +
                  " bytes of shared memory, CUDA device " + std::to_string(device) + " has " + std::to_string(limit) +
                  "\n  to fix: build it for this GPU with smaller blocks or fewer stages");
    }
  }
  add_attributes(kernel, *ready);
  Image& image = *static_cast<Image*>(const_cast<void*>(kernel.image));
  cuda::Module module = nullptr;  // never unloaded: kernels may still run when the process ends
  cuda.check(cuda.ModuleLoadData(&module, image.get()), "cuModuleLoadData", doing);
  cuda.check(cuda.ModuleGetFunction(&ready->function, module, kernel.entry), "cuModuleGetFunction", doing);
  if (kernel.shared_memory > kPlainSharedMemory) {
    cuda.check(cuda.FuncSetAttribute(ready->function, cuda::kMaxDynamicSharedSizeBytes, static_cast<int>(kernel.shared_memory)),
               "cuFuncSetAttribute", doing);
  }
  if (loaded.tensor_maps.size() != 0) ready->padding = cuda::padding_memory(doing);
  ready->context = context;
  ready->most_x = kMaxGridX / kernel.num_ctas;
  ready->num_ctas = static_cast<unsigned>(kernel.num_ctas);
  ready->threads = static_cast<unsigned>(kernel.num_warps * kThreadsPerWarp);
  ready->shared_memory = static_cast<unsigned>(kernel.shared_memory);
  return ready;
}

// Returns a kernel in the context of a scope, which is the current one, loaded by now. `check` says whether it may be loaded.
template <class Check>
const Ready& ready_in(Kernel& kernel, int device, const ContextScope& scope, const Check& check) {
  uint64_t id = 0;
  if (!scope.is_primary()) {
    driver().check(driver().CtxGetId(scope.context(), &id), "cuCtxGetId", "looking for a context's number");
  }
  const std::lock_guard<std::mutex> lock(loading);
  if (const Ready* known = find(kernel, device, scope, id)) return *known;
  check();
  Loaded* loaded = loaded_of(kernel);
  if (loaded == nullptr) {
    loaded = new Loaded{{}, cuda::TensorMaps(kernel.descriptors), {}};
    kernel.loaded.store(loaded, std::memory_order_release);
  }
  const Ready* made = load_here(kernel, *loaded, device, scope.context()).release();
  if (scope.is_primary()) {
    loaded->primary[device].store(made, std::memory_order_release);
  } else {
    loaded->others.emplace_back(id, made);
  }
  return *made;
}

// The driver's own device file.
bool is_likely() {
  return access("/dev/nvidiactl", F_OK) == 0;
}

void load(Kernel& kernel, int device) {
  const ContextScope scope(device);
  ready_in(kernel, device, scope, [] {});
}

// Throws Error where a stream is capturing a graph, into which loading cannot go.
void check_not_capturing(const Kernel& kernel, int device, void* stream) {
  int status = 0;
  const cuda::Result result = driver().StreamIsCapturing(stream, &status);
  constexpr cuda::Result kCaptureImplicit = 906;  // another stream captures, and this is the one that waits for all
  if (status != 0 || result == kCaptureImplicit) {
    throw Error(std::string(kernel.name) + " is not loaded on CUDA device " + std::to_string(device) +
                ", and nothing can be loaded while a graph is captured\n  to fix: call it once before the capture, or warmup");
  }
  driver().check(result, "cuStreamIsCapturing", std::string("loading ") + kernel.name);
}

// Returns what the driver takes for a launch over a grid of programs, no more than GPUs count.
inline cuda::LaunchConfig config_of(const Ready& ready, void* stream, const Grid& grid) {
  const unsigned x = static_cast<unsigned>(grid.x) * ready.num_ctas;
  return {{x, static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)},
          {ready.threads, 1, 1},
          ready.shared_memory,
          stream,
          ready.attributes,
          ready.attribute_count};
}

// Launches with tensor maps after the parameters. Nothing of it lies on the heap. Returns what the driver says.
[[gnu::noinline]] cuda::Result start_with_maps(const Kernel& kernel, const Ready& ready, void* stream, const Grid& grid,
                                               void* const* params) {
  constexpr size_t kMost = 16;  // 4 KiB of parameters hold 32
  constexpr size_t kMostParameters = 512;
  const cuda::TensorMaps& maps = loaded_of(kernel)->tensor_maps;
  const size_t count = maps.parameter_count();
  if (maps.size() > kMost || count > kMostParameters) throw Error(std::string(kernel.name) + " has too many parameters");
  cuda::TensorMap encoded[kMost];
  void* all[kMost + kMostParameters];
  maps.encode(kernel.name, params, ready.padding, stream, encoded);
  for (size_t i = 0; i < count; ++i) all[i] = params[i];
  for (size_t i = 0; i < maps.size(); ++i) all[count + i] = &encoded[i];
  const cuda::LaunchConfig config = config_of(ready, stream, grid);
  return driver().LaunchKernelEx(&config, ready.function, all, nullptr);
}

[[noreturn, gnu::cold]] void launch_failed(cuda::Result result, const Kernel& kernel, const Grid& grid) {
  driver().fail(result, "cuLaunchKernelEx",
                std::string("launching ") + kernel.name + " (" + kernel.target + ") with grid " + text(grid) + ", " +
                    std::to_string(kernel.num_warps * kThreadsPerWarp) + " threads, " + std::to_string(kernel.shared_memory) +
                    " bytes of shared memory");
}

// Launches a kernel without tensor maps. Returns what the driver says.
inline cuda::Result start(const cuda::Driver& cuda, const Ready& ready, void* stream, const Grid& grid, void* const* params) {
  const cuda::LaunchConfig config = config_of(ready, stream, grid);
  return cuda.LaunchKernelEx(&config, ready.function, const_cast<void**>(params), nullptr);
}

// Whether every extent of a grid is at least `least`, and no more than GPUs count.
inline bool within(const Grid& grid, int64_t least, int64_t most_x) {
  const auto between = [least](int64_t extent, int64_t most) { return extent >= least && extent <= most; };
  return between(grid.x, most_x) && between(grid.y, kMaxGridYZ) && between(grid.z, kMaxGridYZ);
}

// Launches where the kernel is not loaded yet, the device's primary context is not the current one, or nothing can be launched.
[[gnu::cold]] void launch_first(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params) {
  if (!within(grid, 0, kMaxGridX / kernel.num_ctas)) {
    throw Error(std::string(kernel.name) + ": grid " + text(grid) + " is outside (2^31 - 1, 65535, 65535)" +
                (kernel.num_ctas > 1 ? ", of which x counts " + std::to_string(kernel.num_ctas) + " blocks a program" : ""));
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const ContextScope scope(device);
  const Ready& ready = ready_in(kernel, device, scope, [&] { check_not_capturing(kernel, device, stream); });
  const cuda::Result result =
      ready.padding != 0 ? start_with_maps(kernel, ready, stream, grid, params) : start(driver(), ready, stream, grid, params);
  if (result != 0) launch_failed(result, kernel, grid);
}

// What the driver says of a function of a context that is not the current one.
constexpr bool is_of_other_context(cuda::Result result) {
  constexpr cuda::Result kInvalidContext = 201, kInvalidHandle = 400, kContextIsDestroyed = 709;
  return result == kInvalidContext || result == kInvalidHandle || result == kContextIsDestroyed;
}

// A device's primary context is nearly always the current one, and the driver refuses the launch where it is not: nobody asks
// before. Tensor maps are asked for: what fills the memory that stands for empty tensors needs the context too.
void launch(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params) {
  const Loaded* loaded = loaded_of(kernel);
  const bool is_known = loaded != nullptr && static_cast<unsigned>(device) < kMaxDevices;
  const Ready* ready = is_known ? loaded->primary[device].load(std::memory_order_acquire) : nullptr;
  if (ready == nullptr || !within(grid, 1, ready->most_x)) return launch_first(kernel, device, stream, grid, params);
  const cuda::Driver& cuda = driver();
  cuda::Result result = 0;
  if (ready->padding == 0) [[likely]] {
    result = start(cuda, *ready, stream, grid, params);
  } else {
    if (current_context(cuda) != ready->context) return launch_first(kernel, device, stream, grid, params);
    result = start_with_maps(kernel, *ready, stream, grid, params);
  }
  if (result == 0) [[likely]]
    return;
  if (!is_of_other_context(result) || current_context(cuda) == ready->context) launch_failed(result, kernel, grid);
  launch_first(kernel, device, stream, grid, params);
}

}  // namespace

const Launcher cuda_launcher = {"cuda", choose, describe, load, launch, nullptr, name, false, is_likely};

}  // namespace kernelpack
