// A CUDA driver without a GPU: counts what is asked of it, remembers the last launch, and fails where MOCK_FAIL or mock_fail
// says. Device memory is the process's own, so that programs that copy to and fro run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

std::mutex mutex;
std::map<std::string, int> counts;
std::string failing = std::getenv("MOCK_FAIL") != nullptr ? std::getenv("MOCK_FAIL") : "";  // `function=result`
unsigned last_launch[8];  // grid, block, shared memory, attributes
uint64_t last_maps[2][16];
int last_attributes[4][2];  // number, first word of the value
unsigned char last_fill = 1;
int capturing = 0;
std::mutex launches;
thread_local void* current = nullptr;
thread_local void* below = nullptr;  // the one that the last push covered

// Counts a call; returns the result it must have.
int called(const char* function) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++counts[function];
  const size_t length = std::strlen(function);
  return failing.compare(0, length, function) == 0 && failing[length] == '=' ? std::atoi(failing.c_str() + length + 1) : 0;
}

int number(const char* name, int otherwise) {
  return std::getenv(name) != nullptr ? std::atoi(std::getenv(name)) : otherwise;
}

struct Attribute {
  int id;
  int padding;
  int value[16];
};

struct Config {
  unsigned grid[3], block[3], shared_memory;
  void* stream;
  const Attribute* attributes;
  unsigned attribute_count;
};

// Contexts: the primary one of each device, and one that a host made itself.
int device_numbers[4] = {0, 1, 2, 3};
int primary_active = 0;
int own_context = 2;

// A kernel in a context: what modules and functions are here.
struct Loaded {
  void* context;
};
uint64_t context_ids[2] = {1, 2};  // of primary contexts, which nobody asks for, and of that one

struct Name {
  int result;
  const char* name;
  const char* text;
};
const Name kNames[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", nullptr},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {300, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing one"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"}};

const Name* name_of(int result) {
  for (const Name& row : kNames) {
    if (row.result == result) return &row;
  }
  return nullptr;
}

}  // namespace

extern "C" {

int mock_count(const char* function) {
  const std::lock_guard<std::mutex> lock(mutex);
  return counts[function];
}
// Lets a function fail from now on: `function=result`, or "" for none.
void mock_fail(const char* what) {
  const std::lock_guard<std::mutex> lock(mutex);
  failing = what;
}
// Returns the results that have names, one after the other, then 0.
int mock_result(int index) {
  return index < static_cast<int>(sizeof(kNames) / sizeof(kNames[0])) ? kNames[index].result : 0;
}
void mock_capture(int status) {
  capturing = status;
}
void* mock_own_context() {
  return &own_context;
}
// The host destroys its context and makes another: it gets the address of the old one, as may be, and a number of its own.
void mock_renew_own_context() {
  ++context_ids[1];
}
const int* mock_last_attribute(int index) {
  return last_attributes[index];
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
  const Name* row = name_of(result);
  *name = row == nullptr ? nullptr : row->name;
  return *name == nullptr;
}
int cuGetErrorString(int result, const char** text) {
  const Name* row = name_of(result);
  *text = row == nullptr ? nullptr : row->text;
  return *text == nullptr;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  const int result = called("cuDeviceGet");
  return result != 0 || ordinal < 4 ? result : 101;
}
int cuDriverGetVersion(int* version) {
  *version = number("MOCK_DRIVER", 13000);
  return called("cuDriverGetVersion");
}
int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "Mock GPU");
  return called("cuDeviceGetName");
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = number("MOCK_CAPABILITY", 90);
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 97 ? 200 * 1024 : -1;
  return called("cuDeviceGetAttribute");
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &device_numbers[device];
  primary_active = 1;
  return called("cuDevicePrimaryCtxRetain");
}
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = primary_active;
  return called("cuDevicePrimaryCtxGetState");
}
int cuCtxGetCurrent(void** context) {
  *context = current;
  return called("cuCtxGetCurrent");
}
int cuCtxGetDevice(int* device) {
  *device = current == nullptr ? -1 : *static_cast<int*>(current);
  return called("cuCtxGetDevice");
}
int cuCtxSetCurrent(void* context) {
  current = context;
  return called("cuCtxSetCurrent");
}
int cuCtxPushCurrent_v2(void* context) {
  const int result = called("cuCtxPushCurrent");
  if (result == 0) below = std::exchange(current, context);
  return result;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = std::exchange(current, std::exchange(below, nullptr));
  return called("cuCtxPopCurrent");
}
int cuStreamIsCapturing(void*, int* status) {
  *status = capturing;
  return called("cuStreamIsCapturing");
}
int cuStreamCreate(void** stream, unsigned) {
  static int only;
  *stream = &only;
  return called("cuStreamCreate");
}
int cuStreamSynchronize(void*) {
  return called("cuStreamSynchronize");
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return called("cuMemcpyHtoDAsync");
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return called("cuMemcpyDtoHAsync");
}
#ifndef MOCK_OLD
int cuCtxGetId(void* context, uint64_t* id) {
  *id = context_ids[context == &own_context];
  return called("cuCtxGetId");
}
#endif
int cuModuleLoadData(void** module, const void* image) {
  *module = new Loaded{current};  // kept until the process ends
  const bool is_image = std::memcmp(image, "image", 5) == 0 || std::memcmp(image, "\177ELF", 4) == 0;
  return !is_image ? 200 : current == nullptr ? 201 : called("cuModuleLoadData");
}
int cuModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return called("cuModuleGetFunction");
}
int cuFuncSetAttribute(void*, int, int) {
  return called("cuFuncSetAttribute");
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  *address = reinterpret_cast<uint64_t>(std::calloc(bytes, 1));  // kept until the process ends
  return called("cuMemAlloc");
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void*) {
  std::memset(reinterpret_cast<void*>(address), value, bytes);
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
int cuLaunchKernelEx(const Config* config, void* function, void** params, void**) {
  if (current == nullptr) return 201;
  if (static_cast<const Loaded*>(function)->context != current) return 400;
  // with MOCK_MAPS kernels have two parameters, and two tensor maps after them
  if (params != nullptr && std::getenv("MOCK_MAPS") != nullptr) {
    for (int i = 0; i < 2; ++i) std::memcpy(last_maps[i], params[2 + i], 128);
  }
  const std::lock_guard<std::mutex> launching(launches);
  const unsigned all[8] = {config->grid[0],  config->grid[1],  config->grid[2],       config->block[0],
                           config->block[1], config->block[2], config->shared_memory, config->attribute_count};
  std::memcpy(last_launch, all, sizeof(all));
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    last_attributes[i][0] = config->attributes[i].id;
    last_attributes[i][1] = config->attributes[i].value[0];
  }
  return called("cuLaunchKernelEx");
}

}  // extern "C"
