// A CUDA driver without a GPU: counts what is asked of it, remembers the last launch, and fails where MOCK_FAIL says.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::map<std::string, int> counts;
unsigned last_launch[8];  // grid, block, shared memory, attributes
uint64_t last_maps[2][16];
unsigned char last_fill = 1;
thread_local int current_device = -1;

// Counts a call; returns the result it must have: MOCK_FAIL is `function=result`.
int called(const char* function) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++counts[function];
  const char* fail = std::getenv("MOCK_FAIL");
  const size_t length = std::strlen(function);
  return fail != nullptr && std::strncmp(fail, function, length) == 0 && fail[length] == '=' ? std::atoi(fail + length + 1) : 0;
}

int number(const char* name, int otherwise) {
  return std::getenv(name) != nullptr ? std::atoi(std::getenv(name)) : otherwise;
}

struct Config {
  unsigned grid[3], block[3], shared_memory;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

int device_numbers[4] = {0, 1, 2, 3};

}  // namespace

extern "C" {

int mock_count(const char* function) {
  return counts[function];
}
const unsigned* mock_last_launch() {
  return last_launch;
}
const uint64_t* mock_last_map(int index) {
  return last_maps[index];
}
int mock_last_fill() {
  return last_fill;
}

int cuInit(unsigned) {
  return called("cuInit");
}
int cuGetErrorName(int result, const char** name) {
  *name = result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : result == 100 ? "CUDA_ERROR_NO_DEVICE" : nullptr;
  return *name == nullptr;
}
int cuGetErrorString(int result, const char** text) {
  *text = result == 700 ? "an illegal memory access was encountered" : nullptr;
  return *text == nullptr;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 4 ? called("cuDeviceGet") : 101;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = number("MOCK_CAPABILITY", 90);
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 97 ? 200 * 1024 : -1;
  return called("cuDeviceGetAttribute");
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &device_numbers[device];
  return called("cuDevicePrimaryCtxRetain");
}
int cuCtxGetCurrent(void** context) {
  *context = current_device < 0 ? nullptr : &device_numbers[current_device];
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = current_device;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  current_device = *static_cast<int*>(context);
  return called("cuCtxPushCurrent");
}
int cuCtxPopCurrent_v2(void** context) {
  *context = nullptr;
  current_device = -1;
  return called("cuCtxPopCurrent");
}
#ifndef MOCK_OLD
int cuLibraryLoadData(void** library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
  *library = const_cast<void*>(code);
  return std::memcmp(code, "image", 5) == 0 ? called("cuLibraryLoadData") : 200;
}
#endif
int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  *kernel = const_cast<char*>(name);
  return called("cuLibraryGetKernel");
}
int cuKernelSetAttribute(int, int, void*, int) {
  return called("cuKernelSetAttribute");
}
int cuMemAlloc_v2(uint64_t* address, size_t) {
  *address = 0x7000;
  return called("cuMemAlloc");
}
int cuMemsetD8Async(uint64_t, unsigned char value, size_t, void*) {
  last_fill = value;
  return called("cuMemsetD8Async");
}
// Writes what it was asked to encode into the map: a kernel's test reads it from the launch's parameters.
int cuTensorMapEncodeTiled(void* map, int element, uint32_t rank, void* address, const uint64_t* sizes, const uint64_t* strides,
                           const uint32_t* box, const uint32_t*, int interleave, int swizzle, int, int fill) {
  auto* out = static_cast<uint64_t*>(map);
  std::memset(out, 0, 128);
  out[0] = static_cast<uint64_t>(element) | uint64_t{rank} << 8 | static_cast<uint64_t>(swizzle) << 16 |
           static_cast<uint64_t>(fill) << 24 | static_cast<uint64_t>(interleave) << 32;
  out[1] = reinterpret_cast<uint64_t>(address);
  for (uint32_t i = 0; i < rank; ++i) {
    out[2 + i] = sizes[i];
    if (i + 1 < rank) out[7 + i] = strides[i];
    out[11 + i] = box[i];
  }
  return called("cuTensorMapEncodeTiled");
}
int cuLaunchKernelEx(const Config* config, void*, void** params, void**) {
  // with MOCK_MAPS kernels have two parameters, and two tensor maps behind them
  if (params != nullptr && std::getenv("MOCK_MAPS") != nullptr) {
    for (int i = 0; i < 2; ++i) std::memcpy(last_maps[i], params[2 + i], 128);
  }
  const unsigned all[8] = {config->grid[0],  config->grid[1],  config->grid[2],       config->block[0],
                           config->block[1], config->block[2], config->shared_memory, config->attribute_count};
  std::memcpy(last_launch, all, sizeof(all));
  return current_device < 0 ? 201 : called("cuLaunchKernelEx");
}

}  // extern "C"
