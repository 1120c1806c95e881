// What benchmarks.launch measures op libraries against: the same op by hand, on torch's stable ABI, an op that asks and checks
// nothing, and bare launches.
//
// Checks of the hand-written op: the dtype is float32, the tensor is contiguous, its elements fit the kernel's 32-bit count,
// every call of torch and of the driver succeeded. It knows its kernel, its device's context and its block size beforehand.
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/cuda_driver.h"

namespace {

namespace cuda = kernelpack::cuda;

using CurrentStream = AOTITorchError (*)(int32_t device, void** stream);
using LaunchKernel = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_memory, void* stream, void** params,
                             void** extra);
using LaunchKernelEx = int (*)(const cuda::LaunchConfig* config, void* function, void** params, void** extra);
using LoadData = int (*)(void** module, const void* image);
using GetFunction = int (*)(void** function, void* module, const char* name);

// The kernel that both sides launch, given by Python.
struct {
  kernelpack::CpuEntry cpu = nullptr;
  void* function = nullptr;
  int64_t block = 1;
  unsigned threads = 1;
} kernel;

struct {
  CurrentStream current_stream;
  LaunchKernel launch;
  LaunchKernelEx launch_ex;
  LoadData load;
  GetFunction get_function;
} driver;

void ok(int code, const char* what) {
  if (code != 0) throw std::runtime_error(std::string(what) + " failed with " + std::to_string(code));
}

template <class Function>
void bind(Function& function, void* library, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
}

struct Owner {
  AtenTensorHandle handle;
  ~Owner() { aoti_torch_delete_tensor_object(handle); }
};

// Writes to `out`, or to a new tensor for nullptr, and returns it.
template <bool is_cuda>
AtenTensorHandle scale(AtenTensorHandle x, double factor, AtenTensorHandle out) {
  int32_t dtype = 0, device = 0;
  int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
  bool contiguous = false;
  ok(aoti_torch_get_dtype(x, &dtype), "dtype");
  static const int32_t float32 = aoti_torch_dtype_float32();
  if (dtype != float32) throw std::runtime_error("x must be float32");
  ok(aoti_torch_is_contiguous(x, &contiguous), "is_contiguous");
  if (!contiguous) throw std::runtime_error("x must be contiguous");
  ok(aoti_torch_get_dim(x, &rank), "dim");
  ok(aoti_torch_get_sizes(x, &sizes), "sizes");
  ok(aoti_torch_get_strides(x, &strides), "strides");
  ok(aoti_torch_get_device_index(x, &device), "device");
  int64_t count = 1;
  for (int64_t i = 0; i < rank; ++i) count *= sizes[i];
  if (count > INT32_MAX) throw std::runtime_error("x is too large");
  static const int32_t type = is_cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
  if (out == nullptr) ok(aoti_torch_empty_strided(rank, sizes, strides, float32, type, device, &out), "empty");
  void *from = nullptr, *to = nullptr;
  ok(aoti_torch_get_data_ptr(x, &from), "data_ptr");
  ok(aoti_torch_get_data_ptr(out, &to), "data_ptr");
  auto n = static_cast<int32_t>(count);
  auto narrow = static_cast<float>(factor);
  void* params[] = {&from, &to, &n, &narrow};
  const auto programs = static_cast<unsigned>((count + kernel.block - 1) / kernel.block);
  if (programs == 0) return out;
  if (is_cuda) {
    void* stream = nullptr;
    ok(driver.current_stream(device, &stream), "current stream");
    const cuda::LaunchConfig config = {{programs, 1, 1}, {kernel.threads, 1, 1}, 0, stream, nullptr, 0};
    ok(driver.launch_ex(&config, kernel.function, params, nullptr), "cuLaunchKernelEx");
  } else {
    const kernelpack::CpuLaunch launch = {params, {programs, 1, 1}};
    kernel.cpu(0, programs, &launch);
  }
  return out;
}

template <bool is_cuda>
void boxed(StableIValue* stack, uint64_t, uint64_t) {
  const Owner x{torch::stable::detail::to<AtenTensorHandle>(stack[0])};
  stack[0] = torch::stable::detail::from(scale<is_cuda>(x.handle, torch::stable::detail::to<double>(stack[1]), nullptr));
}

// The overload that ops have beside it: torch's choice between two takes time.
template <bool is_cuda>
void boxed_out(StableIValue* stack, uint64_t, uint64_t) {
  const Owner x{torch::stable::detail::to<AtenTensorHandle>(stack[0])};
  const Owner out{torch::stable::detail::to<AtenTensorHandle>(stack[2])};
  scale<is_cuda>(x.handle, torch::stable::detail::to<double>(stack[1]), out.handle);
}

// What any op on the stable ABI costs: the call, and an allocation and a launch of what is known beforehand.
void boxed_floor(StableIValue* stack, uint64_t, uint64_t) {
  const Owner x{torch::stable::detail::to<AtenTensorHandle>(stack[0])};
  static const int32_t float32 = aoti_torch_dtype_float32(), type = aoti_torch_device_type_cuda();
  const int64_t stride = 1;
  AtenTensorHandle out = nullptr;
  ok(aoti_torch_empty_strided(1, &kernel.block, &stride, float32, type, 0, &out), "empty");
  void* memory = nullptr;
  ok(aoti_torch_get_data_ptr(out, &memory), "data_ptr");
  auto n = static_cast<int32_t>(kernel.block);
  float factor = 1;
  void* params[] = {&memory, &memory, &n, &factor};
  const cuda::LaunchConfig config = {{1, 1, 1}, {kernel.threads, 1, 1}, 0, nullptr, nullptr, 0};
  ok(driver.launch_ex(&config, kernel.function, params, nullptr), "cuLaunchKernelEx");
  stack[0] = torch::stable::detail::from(out);
}

template <class Body>
double nanoseconds(int64_t calls, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) body();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / double(calls);
}

}  // namespace

STABLE_TORCH_LIBRARY(launch_peer, m) {
  m.def("scale(Tensor x, float factor) -> Tensor");
  m.def("scale.out(Tensor x, float factor, *, Tensor(a!) out) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(launch_peer, CPU, m) {
  m.impl("scale", boxed<false>);
  m.impl("scale.out", boxed_out<false>);
}
STABLE_TORCH_LIBRARY_IMPL(launch_peer, CUDA, m) {
  m.impl("scale", boxed<true>);
  m.impl("scale.out", boxed_out<true>);
}

STABLE_TORCH_LIBRARY(launch_floor, m) {
  m.def("scale(Tensor x, float factor) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(launch_floor, CUDA, m) {
  m.impl("scale", boxed_floor);
}

extern "C" {

void peer_use_cpu(void* entry, int64_t block) {
  kernel.cpu = reinterpret_cast<kernelpack::CpuEntry>(entry);
  kernel.block = block;
}

void peer_open_driver(const char* path) {
  void* cuda = dlopen(path, RTLD_NOW);
  bind(driver.launch, cuda, "cuLaunchKernel");
  bind(driver.launch_ex, cuda, "cuLaunchKernelEx");
  bind(driver.load, cuda, "cuModuleLoadData");
  bind(driver.get_function, cuda, "cuModuleGetFunction");
  bind(driver.current_stream, dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD), "aoti_torch_get_current_cuda_stream");
}

void peer_use_cuda(const void* image, const char* entry, int64_t block, unsigned threads) {
  void* module = nullptr;
  ok(driver.load(&module, image), "cuModuleLoadData");
  ok(driver.get_function(&kernel.function, module, entry), "cuModuleGetFunction");
  kernel.block = block;
  kernel.threads = threads;
}

// Returns the time of cuLaunchKernel with parameters that are prepared.
double peer_time_raw(void* from, void* to, int32_t n, float factor, void* stream, int64_t calls) {
  void* params[] = {&from, &to, &n, &factor};
  const auto programs = static_cast<unsigned>((n + kernel.block - 1) / kernel.block);
  return nanoseconds(calls, [&] {
    ok(driver.launch(kernel.function, programs, 1, 1, kernel.threads, 1, 1, 0, stream, params, nullptr), "cuLaunchKernel");
  });
}

using Entry = int (*)(int device, void* stream, int64_t grid_x, int64_t grid_y, int64_t grid_z, void* from, void* to, int32_t n,
                      float factor);

// Returns the time of the generated entry point of the same kernel.
double peer_time_entry(Entry entry, int32_t device, void* stream, void* from, void* to, int32_t n, float factor,
                       int64_t calls) {
  const int64_t programs = (n + kernel.block - 1) / kernel.block;
  return nanoseconds(calls, [&] { ok(entry(device, stream, programs, 1, 1, from, to, n, factor), "the entry point"); });
}

// Returns the time of an entry point's first call.
double peer_time_first_entry(Entry entry, int32_t device, void* stream, void* from, void* to, int32_t n, float factor) {
  return nanoseconds(1, [&] { ok(entry(device, stream, 1, 1, 1, from, to, n, factor), "the entry point"); });
}

// Returns the time of an allocation and a launch, and of freeing.
double peer_time_allocating(void* from, int32_t n, float factor, int32_t device, void* stream, int64_t calls) {
  const int32_t type = aoti_torch_device_type_cuda(), dtype = aoti_torch_dtype_float32();
  const int64_t size = n, stride = 1;
  const auto programs = static_cast<unsigned>((n + kernel.block - 1) / kernel.block);
  return nanoseconds(calls, [&] {
    AtenTensorHandle out = nullptr;
    ok(aoti_torch_empty_strided(1, &size, &stride, dtype, type, device, &out), "empty");
    const Owner owner{out};
    void* to = nullptr;
    ok(aoti_torch_get_data_ptr(out, &to), "data_ptr");
    void* params[] = {&from, &to, &n, &factor};
    const cuda::LaunchConfig config = {{programs, 1, 1}, {kernel.threads, 1, 1}, 0, stream, nullptr, 0};
    ok(driver.launch_ex(&config, kernel.function, params, nullptr), "cuLaunchKernelEx");
  });
}

// Returns the time from an image to its kernel's first launch, the launch included.
double peer_time_first_use(const void* image, const char* entry, void* from, void* to, int32_t n, float factor, void* stream) {
  void* params[] = {&from, &to, &n, &factor};
  return nanoseconds(1, [&] {
    void *module = nullptr, *function = nullptr;
    ok(driver.load(&module, image), "cuModuleLoadData");
    ok(driver.get_function(&function, module, entry), "cuModuleGetFunction");
    ok(driver.launch(function, 1, 1, 1, kernel.threads, 1, 1, 0, stream, params, nullptr), "cuLaunchKernel");
  });
}

}  // extern "C"
