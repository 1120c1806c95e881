// The CUDA launcher, on the fake driver.
#include "kernels/cuda.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "expect.h"
#include "kernels/cuda_targets.h"
#include "mock_cuda.h"

using namespace kernelpack;

namespace {

Image kImage = {reinterpret_cast<const unsigned char*>("image"), 5, 5};

const unsigned* mock_last_launch() {
  return reinterpret_cast<const unsigned* (*)()>(mock_symbol("mock_last_launch"))();
}

int make_current(void* context) {
  return reinterpret_cast<int (*)(void*)>(mock_symbol("cuCtxSetCurrent"))(context);
}

void* primary_context(int device) {
  void* context = nullptr;
  reinterpret_cast<int (*)(void**, int)>(mock_symbol("cuDevicePrimaryCtxRetain"))(&context, device);
  return context;
}

TEST(cuda_kernels_load_once_from_any_thread) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 8, 1, 100 * 1024, 0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      for (int launch = 0; launch < 20; ++launch) cuda_launcher.launch(kernel, i % 2, nullptr, {3, 2, 1}, nullptr);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT(mock_count("cuInit") == 1);
  EXPECT(mock_count("cuModuleLoadData") == 2);    // for each device
  EXPECT(mock_count("cuFuncSetAttribute") == 2);  // shared memory above 48 KB
  EXPECT(mock_count("cuLaunchKernelEx") == 160);
  EXPECT(mock_count("cuCtxPushCurrent") == mock_count("cuCtxPopCurrent"));  // the thread's context is as it was
  const unsigned* launched = mock_last_launch();
  const unsigned expected[8] = {3, 2, 1, 8 * 32, 1, 1, 100 * 1024, 0};
  EXPECT(std::memcmp(launched, expected, sizeof(expected)) == 0);
}

TEST(cuda_clusters_multiply_the_grid) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 2, 0, 0};
  cuda_launcher.launch(kernel, 0, nullptr, {3, 1, 1}, nullptr);
  EXPECT(mock_last_launch()[0] == 6 && mock_last_launch()[7] == 1);
  EXPECT(mock_count("cuFuncSetAttribute") == 0);
}

TEST(cuda_refuses_what_a_device_cannot_do) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  cuda_launcher.launch(kernel, 0, nullptr, {0, 5, 5}, nullptr);
  Kernel large{"large", "large", "cuda:sm_90a", &kImage, 4, 1, 300 * 1024, 0};
  expect_error("large needs 307200 bytes of shared memory, CUDA device 0 has 204800", [&] { cuda_launcher.load(large, 0); });
  for (const Grid& grid : {Grid{1, 65536, 1}, Grid{1, 1, 65536}, Grid{int64_t{1} << 31, 1, 1}, Grid{-1, 1, 1}}) {
    expect_error("k: grid (", [&] { cuda_launcher.launch(kernel, 0, nullptr, grid, nullptr); });
  }
  expect_error("CUDA device number 64 is out of range", [&] { cuda_launcher.load(kernel, 64); });
  EXPECT(mock_count("cuLaunchKernelEx") == 0);
  cuda_launcher.launch(kernel, 3, nullptr, {1, 1, 1}, nullptr);  // the next launch works
  EXPECT(mock_count("cuLaunchKernelEx") == 1);
}

// The maps of a kernel of a pointer and an i32: a matrix of n rows and 64 columns, and what is after its first n + 3 rows
// of 4.
const char* const kMaps =
    "pi\nbf16; base: $0; sizes: $1, 64; strides: 64; box: 128, 32; swizzle: 64; padding: zero\n"
    "f32; base: $0 $1 3 + 16 * +; sizes: 2, $1 2 / 1 >?, 100 7 % $1 <?; strides: $1 8 * 4 -, 4; box: 1, 8, 4; swizzle: 0; "
    "padding: nan\n";

TEST(cuda_tensor_maps_are_encoded_at_each_launch) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, kMaps};
  const auto last_map = reinterpret_cast<const uint64_t* (*)(int)>(mock_symbol("mock_last_map"));
  for (int n : {5, 1000}) {
    uint64_t address = 0x1000;
    void* params[] = {&address, &n};
    cuda_launcher.launch(kernel, 0, nullptr, {2, 1, 1}, params);
    // element, rank, swizzle and fill; address; sizes, strides in bytes and box from the innermost axis on (mock_cuda.cpp)
    const uint64_t rows = static_cast<uint64_t>(n);
    const uint64_t first[14] = {9 | 2 << 8 | 2 << 16, 0x1000, 64, rows, 0, 0, 0, 128, 0, 0, 0, 32, 128, 0};
    EXPECT(std::memcmp(last_map(0), first, sizeof(first)) == 0);
    const uint64_t second[14] = {
        7 | 3 << 8 | 1 << 24, 0x1000 + (rows + 3) * 16, 2, rows / 2, 2, 0, 0, 16, (rows * 8 - 4) * 4, 0, 0, 4, 8, 1};
    EXPECT(std::memcmp(last_map(1), second, sizeof(second)) == 0);
  }
  EXPECT(mock_count("cuTensorMapEncodeTiled") == 4);
}

TEST(cuda_empty_tensors_read_as_padding) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, kMaps};
  const auto last_map = reinterpret_cast<const uint64_t* (*)(int)>(mock_symbol("mock_last_map"));
  const auto last_fill = reinterpret_cast<int (*)()>(mock_symbol("mock_last_fill"));
  cuda_launcher.load(kernel, 0);
  EXPECT(mock_count("cuMemAlloc") == 1);  // not when an empty tensor comes: that may be in a capture, which allows none
  for (int launch = 0; launch < 2; ++launch) {
    uint64_t address = 0;
    int n = 0;
    void* params[] = {&address, &n};
    cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, params);
    const uint64_t zeros = last_map(0)[1];
    const uint64_t first[14] = {9 | 2 << 8 | 2 << 16, zeros, 1, 1, 0, 0, 0, 16, 0, 0, 0, 32, 128, 0};
    EXPECT(std::memcmp(last_map(0), first, sizeof(first)) == 0);
    EXPECT(zeros != 0 && *reinterpret_cast<const int*>(zeros) == 0);
    EXPECT(last_map(1)[1] == zeros + 64 && *reinterpret_cast<const int*>(zeros + 64) == -1 && last_fill() == 0xFF);
  }
  EXPECT(mock_count("cuMemAlloc") == 1 && mock_count("cuMemsetD8Async") == 4);
}

// Launches a kernel of a pointer and an i32.
void launch(const char* maps, uint64_t address, int n) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, maps};
  void* params[] = {&address, &n};
  cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, params);
}

TEST(cuda_tensor_maps_of_sums_that_64_bits_do_not_hold) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const char* sum : {"M 1 +", "m 1 -", "M 2 *", "m -1 *", "m -1 /", "M M *"}) {
    std::string text = sum;
    for (size_t at; (at = text.find_first_of("Mm")) != std::string::npos;) {
      text.replace(at, 1, std::to_string(text[at] == 'M' ? most : -most - 1));
    }
    const std::string record =
        "pi\nf16; base: $0; sizes: 7, 40; strides: " + text + " 8 /; box: 2, 8; swizzle: 0; padding: zero";
    expect_error("k cannot describe a tensor of sizes [7, 40]", [&] { launch(record.c_str(), 0x1008, 40); });
    const std::string rest = "pi\nf16; base: " + text + " -1 % $0 +; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero";
    launch(rest.c_str(), 0x1000, 40);
  }
  expect_error("its strides are not between 0 and 2^40 bytes", [&] {
    launch("pi\nf64; base: $0; sizes: 7, 40; strides: 4611686018427387904; box: 2, 8; swizzle: 0; padding: zero", 0x1000, 1);
  });
}

TEST(cuda_tensors_that_maps_cannot_describe) {
  const char* const rows = "pi\nf16; base: $0; sizes: 7, 40; strides: $1; box: 2, 8; swizzle: 0; padding: zero";
  const std::string tensor = "k cannot describe a tensor of sizes [7, 40], strides ";
  expect_error(tensor + "[80] bytes, in blocks of [2, 8] to the GPU: its address is no multiple of 16\n  to fix: pass a tensor",
               [&] { launch(rows, 0x1008, 40); });
  expect_error(tensor + "[82] bytes, in blocks of [2, 8] to the GPU: its strides are no multiples of 16 bytes",
               [&] { launch(rows, 0x1000, 41); });
  expect_error("its strides are not between 0 and 2^40 bytes", [&] { launch(rows, 0x1000, -8); });
  expect_error("its sizes are not between 0 and 2^32",
               [&] { launch("pi\nf16; base: $0; sizes: $1; strides: ; box: 8; swizzle: 0; padding: zero", 0x1000, -1); });
  for (const char* broken :
       {" ", "\n", "\n \n", "pi\nf16; base: $0", "pi\nf17; base: $0; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
        "pi\nf16; base: $2; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
        "xi\nf16; base: $0; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
        "pi\nf16; base: $0 +; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
        "pi\nf16; base: $0 $1; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
        "pi\nf16; base: $0; sizes: 8, 8; strides: ; box: 8, 8; swizzle: 0; padding: zero"}) {
    expect_error("the record of a tensor map is malformed", [&] { launch(broken, 0x1000, 1); });
  }
  EXPECT(mock_count("cuLaunchKernelEx") == 0);
}

TEST(cuda_driver_refuses_a_tensor_map) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, kMaps};
  uint64_t address = 0x1000;
  int n = 8;
  void* params[] = {&address, &n};
  expect_error(
      "cuTensorMapEncodeTiled failed with an unknown CUresult (77, no description) while describing a tensor of sizes [8, 64], "
      "strides [128] bytes, in blocks of [128, 32] for k",
      [&] { cuda_launcher.launch(kernel, 0, nullptr, {2, 1, 1}, params); });
}

TEST(cuda_targets_fit_the_device) {
  const auto chosen = [](std::vector<const char*> targets) {
    const int index = cuda_launcher.choose(targets.data(), static_cast<int>(targets.size()), 0, {true});
    return std::string(index < 0 ? "none" : targets[index]);
  };
  const std::string device = cuda_launcher.describe(0);
  if (device == "cuda:sm_90") {
    EXPECT(chosen({"cuda:sm_80", "cuda:sm_90a", "cuda:sm_90"}) == "cuda:sm_90a");
    EXPECT(chosen({"cuda:sm_80", "cuda:sm_90"}) == "cuda:sm_90");
    EXPECT(chosen({"cuda:sm_80", "cuda:sm_100a"}) == "none");  // cubins run on their major version alone
    EXPECT(chosen({"cuda:sm_80", "cuda:sm_80+ptx"}) == "cuda:sm_80+ptx");
  } else {
    EXPECT(device == "cuda:sm_86");
    EXPECT(chosen({"cuda:sm_80", "cuda:sm_90a", "cuda:sm_89"}) == "cuda:sm_80");
    EXPECT(chosen({"cuda:sm_90a", "cuda:sm_75"}) == "none");
  }
}

TEST(cuda_targets_by_order_of_preference) {
  const auto chosen = [](int capability, int driver_version, std::vector<const char*> targets) {
    const int index = cuda::choose_target(targets.data(), static_cast<int>(targets.size()), {capability, driver_version});
    return std::string(index < 0 ? "none" : targets[index]);
  };
  const std::vector<const char*> all = {"cuda:sm_80+ptx", "cuda:sm_80", "cuda:sm_86",
                                        "cuda:sm_90a",    "cuda:sm_90", "cuda:sm_90+ptx"};
  EXPECT(chosen(90, 13000, all) == "cuda:sm_90a");  // exactly this architecture, with what is special about it
  EXPECT(chosen(90, 13000, {"cuda:sm_90", "cuda:sm_90+ptx", "cuda:sm_80"}) == "cuda:sm_90");
  EXPECT(chosen(89, 13000, all) == "cuda:sm_86");  // the highest minor of its major that is not above it
  EXPECT(chosen(87, 13000, {"cuda:sm_89", "cuda:sm_80"}) == "cuda:sm_80");
  EXPECT(chosen(100, 13000, all) == "cuda:sm_90+ptx");  // neither cubins of other majors nor sm_90a; the newest PTX
  EXPECT(chosen(100, 12000, all) == "cuda:sm_80+ptx");  // a driver of CUDA 12.0 knows PTX ISA 8.0 alone
  EXPECT(chosen(100, 11080, all) == "none");
  EXPECT(chosen(100, 12030, {"cuda:sm_89+ptx", "cuda:sm_80+ptx"}) == "cuda:sm_80+ptx");  // PTX for sm_89 is of CUDA 12.4
  EXPECT(chosen(100, 12040, {"cuda:sm_89+ptx", "cuda:sm_80+ptx"}) == "cuda:sm_89+ptx");
  EXPECT(chosen(90, 13000, {"cuda:sm_80", "cuda:sm_80+ptx"}) == "cuda:sm_80+ptx");
  EXPECT(chosen(75, 13000, all) == "none");
  EXPECT(chosen(103, 13000, {"cuda:sm_100a", "cuda:sm_90a"}) == "none");
  EXPECT(chosen(90, 13000, {"cpu:x86-64", "cuda:sm_90b", "cuda:sm_90a+ptx"}) == "none");
  EXPECT(chosen(90, 13000, {}) == "none");
}

TEST(cuda_device_that_nothing_was_built_for) {
  const char* const targets[] = {"cuda:sm_100a", "cuda:sm_80"};
  EXPECT(cuda_launcher.choose(targets, 2, 0, {false}) == -1);
  EXPECT(no_target_fits(cuda_launcher, targets, 2, 0, "kernelpack build ops") ==
         "this library holds no code for Mock GPU (compute capability 9.0, driver for CUDA 13.0); it holds cuda:sm_100a, "
         "cuda:sm_80"
         "\n  to fix: kernelpack build ops --target cuda:sm_90");
}

TEST(cuda_errors_name_result_and_cure) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  expect_error(
      "cuLaunchKernelEx failed with CUDA_ERROR_ILLEGAL_ADDRESS (700, an illegal memory access was encountered) while launching "
      "k "
      "(cuda:sm_90a) with grid (2, 1, 1), 128 threads, 0 bytes of shared memory\n  to fix: the kernel accessed memory",
      [&] { cuda_launcher.launch(kernel, 0, nullptr, {2, 1, 1}, nullptr); });
}

TEST(cuda_driver_that_finds_no_gpu) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_error(
        "cuInit failed with CUDA_ERROR_NO_DEVICE (100, no description) while starting the CUDA driver\n  to fix: no GPU is "
        "visible",
        [] { cuda_launcher.describe(0); });
  }
}

TEST(cuda_driver_that_is_too_old) {
  expect_error("the CUDA driver has no cuCtxGetId: it is older than 12.0\n  to fix: update the driver",
               [] { cuda_launcher.describe(0); });
}

TEST(cuda_driver_that_is_missing) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_error("the CUDA driver cannot be opened: ", [] { cuda_launcher.describe(0); });
    expect_error("to fix: install the NVIDIA driver on this machine, or set KERNELPACK_LIBCUDA",
                 [] { cuda_launcher.describe(0); });
  }
}

TEST(cuda_every_error_of_every_function_is_told_and_survived) {
  // what is asked once a process, once a kernel and device, and at each launch
  const char* const functions[] = {"cuInit",
                                   "cuDeviceGet",
                                   "cuDevicePrimaryCtxRetain",
                                   "cuCtxGetCurrent",
                                   "cuCtxPushCurrent",
                                   "cuStreamIsCapturing",
                                   "cuModuleLoadData",
                                   "cuModuleGetFunction",
                                   "cuFuncSetAttribute",
                                   "cuDeviceGetAttribute",
                                   "cuTensorMapEncodeTiled",
                                   "cuMemAlloc",
                                   "cuMemsetD8Async",
                                   "cuLaunchKernelEx"};
  const auto result_at = reinterpret_cast<int (*)(int)>(mock_symbol("mock_result"));
  const auto name_of = reinterpret_cast<int (*)(int, const char**)>(mock_symbol("cuGetErrorName"));
  uint64_t address = 0;
  int n = 0;  // an empty tensor, whose map needs memory of its own
  void* params[] = {&address, &n};
  for (const std::string function : functions) {
    for (int i = 0; result_at(i) != 0; ++i) {
      const int result = result_at(i);
      const char* name = nullptr;
      name_of(result, &name);
      const bool once = function == "cuInit" || function == "cuDevicePrimaryCtxRetain";
      if (once && i > 0) continue;                                       // they have succeeded, and are not asked again
      if (function == "cuStreamIsCapturing" && result == 906) continue;  // which is how it says that another stream captures
      const int device = function == "cuDevicePrimaryCtxRetain" ? 1 : 0;
      Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 100 * 1024, 0, kMaps};
      mock_fail(function + "=" + std::to_string(result));
      expect_error(function + " failed with " + name + " (" + std::to_string(result) + ", ",
                   [&] { cuda_launcher.launch(kernel, device, nullptr, {2, 1, 1}, params); });
      mock_fail("");
      const int before = mock_count("cuLaunchKernelEx");
      cuda_launcher.launch(kernel, device, nullptr, {2, 1, 1}, params);  // nothing is left over
      EXPECT(mock_count("cuLaunchKernelEx") == before + 1);
    }
  }
}

TEST(cuda_launches_ask_the_driver_for_nothing) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, nullptr, true};
  cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
  make_current(primary_context(0));
  const auto total = [] {
    int all = 0;
    for (const char* function :
         {"cuDeviceGet", "cuDeviceGetAttribute", "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent", "cuCtxPopCurrent",
          "cuStreamIsCapturing", "cuModuleLoadData", "cuModuleGetFunction", "cuDevicePrimaryCtxGetState"}) {
      all += mock_count(function);
    }
    return all;
  };
  const int before = total();
  for (int i = 0; i < 10; ++i) cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
  EXPECT(total() == before);
}

TEST(cuda_launches_find_their_way_into_the_kernels_context) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  void* own = reinterpret_cast<void* (*)()>(mock_symbol("mock_own_context"))();  // of device 2
  cuda_launcher.launch(kernel, 2, nullptr, {1, 1, 1}, nullptr);                  // in the primary context
  make_current(own);
  cuda_launcher.launch(kernel, 2, nullptr, {1, 1, 1}, nullptr);
  EXPECT(mock_count("cuModuleLoadData") == 2);  // the host's context is used as it is
  for (void* context : {static_cast<void*>(nullptr), own}) {
    make_current(context);
    for (int device : {2, 1}) cuda_launcher.launch(kernel, device, nullptr, {1, 1, 1}, nullptr);
    void* after = &kernel;
    reinterpret_cast<int (*)(void**)>(mock_symbol("cuCtxGetCurrent"))(&after);
    EXPECT(after == context);
  }
  EXPECT(mock_count("cuModuleLoadData") == 3);  // and in that of device 1
  EXPECT(mock_count("cuLaunchKernelEx") == 6);
}

TEST(cuda_a_hosts_own_context_is_used) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  void* own = reinterpret_cast<void* (*)()>(mock_symbol("mock_own_context"))();  // of device 2
  make_current(own);
  for (int i = 0; i < 3; ++i) cuda_launcher.launch(kernel, 2, nullptr, {1, 1, 1}, nullptr);
  EXPECT(mock_count("cuDevicePrimaryCtxRetain") == 0 && mock_count("cuCtxPushCurrent") == 0);
  cuda_launcher.launch(kernel, 1, nullptr, {1, 1, 1}, nullptr);  // another device: its primary context, for the call
  EXPECT(mock_count("cuDevicePrimaryCtxRetain") == 1);
  EXPECT(mock_count("cuCtxPushCurrent") == mock_count("cuCtxPopCurrent"));
  void* after = nullptr;
  reinterpret_cast<int (*)(void**)>(mock_symbol("cuCtxGetCurrent"))(&after);
  EXPECT(after == own);
  EXPECT(mock_count("cuModuleLoadData") == 2);
  reinterpret_cast<void (*)()>(mock_symbol("mock_renew_own_context"))();
  for (int i = 0; i < 3; ++i) cuda_launcher.launch(kernel, 2, nullptr, {1, 1, 1}, nullptr);
  EXPECT(mock_count("cuModuleLoadData") == 3);  // the code went with the context
  mock_fail("cuCtxGetId=201");
  expect_error("cuCtxGetId failed with CUDA_ERROR_INVALID_CONTEXT",
               [&] { cuda_launcher.launch(kernel, 2, nullptr, {1, 1, 1}, nullptr); });
}

TEST(cuda_nothing_is_loaded_during_a_capture) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  const auto capture = reinterpret_cast<void (*)(int)>(mock_symbol("mock_capture"));
  cuda_launcher.describe(0);
  capture(1);
  const std::string said =
      "k is not loaded on CUDA device 0, and nothing can be loaded while a graph is captured\n  to fix: call it once before";
  expect_error(said, [&] { cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr); });
  EXPECT(mock_count("cuModuleLoadData") == 0);
  capture(0);
  mock_fail("cuStreamIsCapturing=906");  // the legacy stream, while another one captures
  expect_error(said, [&] { cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr); });
  mock_fail("");
  cuda_launcher.load(kernel, 0);
  capture(1);
  cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
  EXPECT(mock_count("cuLaunchKernelEx") == 1);
}

TEST(cuda_attributes_of_launches) {
  const auto attribute = reinterpret_cast<const int* (*)(int)>(mock_symbol("mock_last_attribute"));
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 2, 0, 0, nullptr, true, true};
  cuda_launcher.launch(kernel, 0, nullptr, {3, 1, 1}, nullptr);
  EXPECT(mock_last_launch()[7] == 3);
  EXPECT(attribute(0)[0] == 4 && attribute(0)[1] == 2);                                // a cluster of two blocks
  EXPECT(attribute(1)[0] == 6 && attribute(1)[1] == 1);                                // programmatic dependent launch
  EXPECT(attribute(2)[0] == 2 && attribute(2)[1] == 1);                                // cooperative
  Kernel older{"k", "k", "cuda:sm_80+ptx", &kImage, 4, 1, 0, 0, nullptr, true, true};  // has no instruction that waits
  cuda_launcher.launch(older, 0, nullptr, {3, 1, 1}, nullptr);
  EXPECT(attribute(0)[0] == 2);  // cooperative alone
  mock_fail("cuLaunchKernelEx=720");
  expect_error("all programs of a cooperative launch run at once",
               [&] { cuda_launcher.launch(kernel, 0, nullptr, {3, 1, 1}, nullptr); });
  expect_error("of which x counts 2 blocks a program",
               [&] { cuda_launcher.launch(kernel, 0, nullptr, {int64_t{1} << 30, 1, 1}, nullptr); });
}

TEST(cuda_a_forked_process_is_told) {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  const pid_t early = fork();  // before the driver is opened: the child opens its own
  if (early == 0) {
    cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
    std::_Exit(0);
  }
  int status = 0;
  EXPECT(waitpid(early, &status, 0) == early && status == 0);
  cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 2; ++i) {
      expect_error("this process was forked from one that uses CUDA",
                   [&] { cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr); });
    }
    std::_Exit(0);
  }
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
}

}  // namespace
