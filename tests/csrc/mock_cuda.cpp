// A CUDA driver without a GPU: counts what is asked of it, remembers the last launch, and fails where MOCK_FAIL says.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::map<std::string, int> counts;
unsigned last_launch[8];  // grid, block, shared memory, attributes
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
int cuLaunchKernelEx(const Config* config, void*, void**, void**) {
  const unsigned all[8] = {config->grid[0],  config->grid[1],  config->grid[2],       config->block[0],
                           config->block[1], config->block[2], config->shared_memory, config->attribute_count};
  std::memcpy(last_launch, all, sizeof(all));
  return current_device < 0 ? 201 : called("cuLaunchKernelEx");
}

}  // extern "C"
