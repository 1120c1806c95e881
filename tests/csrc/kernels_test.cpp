// Tests of the loaders and launchers, which know nothing of torch. `kernels_test NAME` runs one; test_kernels.py runs all.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "fake_kernels.h"
#include "kernels/base64.h"
#include "kernels/cpu.h"
#include "kernels/cuda.h"
#include "kernels/cuda_targets.h"
#include "kernels/host_math.h"
#include "kernels/table.h"

using namespace kernelpack;

namespace {

#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::cerr << __FILE__ << ":" << __LINE__ << ": not so: " << #condition << "\n"; \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)

// Runs `body`, which must throw an Error whose text holds `part`.
void expect_error(const std::string& part, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (std::string(error.what()).find(part) != std::string::npos) return;
    std::cerr << "another error: " << error.what() << "\nexpected: " << part << "\n";
    std::exit(1);
  }
  std::cerr << "no error; expected: " << part << "\n";
  std::exit(1);
}

// -- CPU launches -----------------------------------------------------------------------------------------------------

std::mutex mutex;
std::vector<std::pair<int64_t, int64_t>> ranges;
std::set<std::thread::id> threads_seen;
uint32_t grid_seen[3];

void record(int64_t begin, int64_t end, const CpuLaunch* launch) {
  const std::lock_guard<std::mutex> lock(mutex);
  ranges.emplace_back(begin, end);
  threads_seen.insert(std::this_thread::get_id());
  std::memcpy(grid_seen, launch->grid, sizeof(grid_seen));
}

struct Threads {
  int count;
  int asked = 0;
};

int num_threads(void* context) {
  auto* threads = static_cast<Threads*>(context);
  ++threads->asked;
  return threads->count;
}

void run_in_threads(void*, int64_t count, void (*body)(int64_t, int64_t, void*), void* argument) {
  std::vector<std::thread> workers;
  for (int64_t i = 0; i < count; ++i) workers.emplace_back(body, i, i + 1, argument);
  for (std::thread& worker : workers) worker.join();
}

// Runs a grid and returns how many pieces it fell into, after checking that they hold every program once.
int64_t pieces_of(const Grid& grid, double program_ns, Threads* threads) {
  ranges.clear();
  threads_seen.clear();
  const ParallelFor parallel{num_threads, run_in_threads, threads};
  run_on_cpu(record, program_ns, threads == nullptr ? nullptr : &parallel, grid, nullptr);
  std::sort(ranges.begin(), ranges.end());
  int64_t next = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT(begin == next && end > begin);
    next = end;
  }
  EXPECT(next == grid.x * grid.y * grid.z);
  if (next > 0) EXPECT(grid_seen[0] == grid.x && grid_seen[1] == grid.y && grid_seen[2] == grid.z);
  return static_cast<int64_t>(ranges.size());
}

void every_program_runs_once() {
  for (const Grid& grid : {Grid{1, 1, 1}, Grid{7, 1, 1}, Grid{3, 5, 2}, Grid{1000, 3, 1}, Grid{1, 1, 977}}) {
    for (double program_ns : {0.0, 1.0, 900.0, 5e4, 1e9}) {
      for (int count : {1, 2, 3, 16}) {
        Threads threads{count};
        pieces_of(grid, program_ns, &threads);
        EXPECT(threads_seen.size() <= static_cast<size_t>(count));
      }
      pieces_of(grid, program_ns, nullptr);
      EXPECT(threads_seen == std::set<std::thread::id>{std::this_thread::get_id()});
    }
  }
}

void small_launches_run_on_the_calling_thread() {
  Threads threads{8};
  EXPECT(pieces_of({99, 1, 1}, 100, &threads) == 1);  // 9.9 us
  EXPECT(pieces_of({1, 1, 1}, 1e9, &threads) == 1);   // one program has nothing to share
  EXPECT(threads.asked == 0);
  EXPECT(pieces_of({101, 1, 1}, 100, &threads) > 1);  // 10.1 us
  EXPECT(threads.asked == 1);
}

void pieces_are_long_enough_and_balance() {
  Threads threads{4};
  EXPECT(pieces_of({64, 1, 1}, 1e6, &threads) == 64);      // programs of a millisecond are taken one by one
  EXPECT(pieces_of({100000, 1, 1}, 10, &threads) == 252);  // 4 us each, cut where ranges end
  EXPECT(pieces_of({32, 1, 1}, 400, &threads) == 16);      // at least four for each thread
}

// Runs one worker after the other, the last one first.
void run_backwards(void*, int64_t count, void (*body)(int64_t, int64_t, void*), void* argument) {
  for (int64_t i = count; i-- > 0;) body(i, i + 1, argument);
}

void workers_start_with_programs_of_their_own_and_help_others() {
  ranges.clear();
  Threads threads{4};
  const ParallelFor parallel{num_threads, run_backwards, &threads};
  run_on_cpu(record, 1e6, &parallel, {64, 1, 1}, nullptr);
  EXPECT(ranges.size() == 64);
  EXPECT(ranges.front().first == 48);  // the last worker's own quarter,
  EXPECT(ranges[16].first == 0);       // then its neighbour's
}

void empty_grids_run_nothing() {
  Threads threads{4};
  for (const Grid& grid : {Grid{0, 1, 1}, Grid{5, 0, 1}, Grid{5, 5, 0}, Grid{0, 0, 0}})
    EXPECT(pieces_of(grid, 1e6, &threads) == 0);
  EXPECT(threads.asked == 0);
}

void grids_out_of_range_are_refused() {
  for (const Grid& grid : {Grid{-1, 1, 1}, Grid{1, -7, 1}, Grid{int64_t{1} << 31, 1, 1}, Grid{1, 1, int64_t{1} << 40}}) {
    expect_error("is negative or larger than 2^31 - 1", [&] { pieces_of(grid, 1, nullptr); });
  }
  const int64_t most = INT32_MAX;
  expect_error("more than 2^63 programs", [&] { run_on_cpu(record, 1, nullptr, {most, most, most}, nullptr); });
}

void launches_from_many_threads_do_not_mix() {
  struct Sum {
    std::atomic<int64_t> total{0};
  };
  const auto add = [](int64_t begin, int64_t end, const CpuLaunch* launch) {
    auto* sum = *static_cast<Sum**>(launch->params[0]);
    for (int64_t i = begin; i < end; ++i) sum->total += i;
  };
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      for (int64_t count : {5, 100, 1000, 3000}) {
        Sum sum;
        Sum* address = &sum;
        void* params[] = {&address};
        Threads threads{3};
        const ParallelFor parallel{num_threads, run_in_threads, &threads};
        run_on_cpu(add, 1e5, &parallel, {count, 1, 1}, params);
        EXPECT(sum.total == count * (count - 1) / 2);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

void a_forked_process_launches() {
  Threads threads{4};
  pieces_of({64, 1, 1}, 1e6, &threads);
  const pid_t child = fork();
  if (child == 0) {
    Threads own{2};
    pieces_of({64, 1, 1}, 1e6, &own);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  pieces_of({64, 1, 1}, 1e6, &threads);
}

// -- CPU targets ------------------------------------------------------------------------------------------------------

void the_best_level_that_the_cpu_has_is_chosen() {
  unsetenv("KERNELPACK_CPU_TARGET");
#if defined(__x86_64__)
  const char* const two[] = {"cpu:x86-64-v2", "cpu:x86-64"};
  EXPECT(cpu_launcher.choose(two, 2, 0, true) == (__builtin_cpu_supports("x86-64-v2") ? 0 : 1));
  const char* const levels[] = {"cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4"};
  const int expected = __builtin_cpu_supports("x86-64-v4") ? 2 : __builtin_cpu_supports("x86-64-v3") ? 1 : 0;
  EXPECT(cpu_launcher.choose(levels, 3, 0, true) == expected);
  const char* const halves[] = {"cpu:x86-64-v4", "cpu:x86-64-v4+avx512bf16"};
  if (__builtin_cpu_supports("avx512bf16")) {  // its products are slow on Intel, its conversions never
    EXPECT(cpu_launcher.choose(halves, 2, 0, false) == 1);
    EXPECT(cpu_launcher.choose(halves, 2, 0, true) == (__builtin_cpu_is("amd") ? 1 : 0));
  }
  const char* const other[] = {"cpu:x86-64+no-such-feature", "cpu:aarch64"};
  EXPECT(cpu_launcher.choose(other, 2, 0, true) == -1);
  const std::string best = cpu_launcher.describe(0);
  const char* const described[] = {best.c_str()};
  EXPECT(cpu_launcher.choose(described, 1, 0, true) == 0);
#endif
}

void the_knob_forces_a_level() {
  const char* const levels[] = {"cpu:x86-64", "cpu:x86-64-v2", "cpu:x86-64+no-such-feature"};
  setenv("KERNELPACK_CPU_TARGET", "cpu:x86-64", 1);
  EXPECT(cpu_launcher.choose(levels, 3, 0, true) == 0);
  setenv("KERNELPACK_CPU_TARGET", "", 1);
  EXPECT(cpu_launcher.choose(levels, 2, 0, true) == 1);
  setenv("KERNELPACK_CPU_TARGET", "cpu:x86-64-v9", 1);
  expect_error("KERNELPACK_CPU_TARGET asks for cpu:x86-64-v9, the library holds cpu:x86-64, cpu:x86-64-v2",
               [&] { cpu_launcher.choose(levels, 2, 0, true); });
  setenv("KERNELPACK_CPU_TARGET", "cpu:x86-64+no-such-feature", 1);
  expect_error("which this CPU cannot run", [&] { cpu_launcher.choose(levels, 3, 0, true); });
}

// -- tables, base64, arithmetic ---------------------------------------------------------------------------------------

void the_variant_that_assumes_most_and_may_is_found() {
  Kernel kernels[3] = {};
  const Variant variants[] = {{&kernels[0], nullptr, 0, nullptr},
                              {&kernels[1], nullptr, 0, nullptr},
                              {&kernels[2], nullptr, 0, nullptr},
                              {&kernels[0], nullptr, 0, nullptr}};
  const Point points[] = {{0b1101, 0}, {0, 3}, {uint64_t{1} << 63, 3}};
  const TargetVariants table{points, variants, 4};
  EXPECT(table.find(0, bits(true, true, true, true)) == &variants[0]);
  EXPECT(table.find(0, bits(false, true, true, true)) == &variants[1]);
  EXPECT(table.find(0, bits(false, true, false, true)) == &variants[2]);
  EXPECT(table.find(0, bits(false, true)) == nullptr);
  EXPECT(table.find(1, ~uint64_t{0}) == nullptr);
  EXPECT(table.find(2, ~uint64_t{0}) == &variants[3]);
  EXPECT(table.find(2, ~uint64_t{0} >> 1) == nullptr);
}

void values_that_were_not_built_have_no_place() {
  const ValueAxis<2, 2, 2> axis = {"WIDTH", {16, 64}, 0xdaa66d2c7ddf743f, {0, 1}, {1, 0}};  // as a build made it
  EXPECT(axis.place(16) == 0);
  EXPECT(axis.place(64) == 1);
  for (int64_t other : {int64_t{0}, int64_t{-16}, int64_t{17}, int64_t{16} << 32, INT64_MIN, INT64_MAX})
    EXPECT(axis.place(other) == -1);
}

void base64_of_other_sizes_and_letters_is_refused() {
  const auto decoded = [](std::vector<const char*> chunks, size_t size) {
    const Base64Image image{chunks.data(), chunks.size(), size};
    const auto bytes = decode(image);
    EXPECT(bytes[size] == 0);
    return std::string(reinterpret_cast<const char*>(bytes.get()), size);
  };
  EXPECT(decoded({"aW1hZ2U="}, 5) == "image");
  EXPECT(decoded({"aW1h", "Z2U="}, 5) == "image");
  EXPECT(decoded({"aW1hZ2Vz"}, 6) == "images");
  EXPECT(decoded({"aQ=="}, 1) == "i");
  EXPECT(decoded({}, 0).empty());
  for (const auto& [text, size] : std::vector<std::pair<const char*, size_t>>{{"aW1hZ2U=", 4},
                                                                              {"aW1hZ2U=", 6},
                                                                              {"aW1hZ2U", 5},
                                                                              {"aW1h!2U=", 5},
                                                                              {"aW=hZ2U=", 5},
                                                                              {"aW1hZ2U=aW1h", 8},
                                                                              {"====", 1}}) {
    expect_error("an embedded image is corrupt", [&, text = text, size = size] { decoded({text}, size); });
  }
}

void arithmetic_has_pythons_meaning() {
  EXPECT(floor_div(int64_t{-7}, int64_t{2}) == -4 && floor_mod(int64_t{-7}, int64_t{2}) == 1);
  EXPECT(floor_div(int64_t{7}, int64_t{-2}) == -4 && floor_mod(int64_t{7}, int64_t{-2}) == -1);
  EXPECT(floor_div(INT64_MIN, int64_t{-1}) == INT64_MIN && floor_mod(INT64_MIN, int64_t{-1}) == 0);
  EXPECT(cdiv(7, 2) == 4 && cdiv(-7, 2) == -3 && cdiv(0, 5) == 0);
  EXPECT(next_power_of_2(0) == 1 && next_power_of_2(5) == 8 && next_power_of_2(8) == 8);
  expect_error("division or modulo by zero", [] { floor_div(int64_t{1}, int64_t{0}); });
  expect_error("division by zero", [] { true_div(1, 0); });
}

// -- CUDA, with the driver that KERNELPACK_LIBCUDA names ---------------------------------------------------------------

const char* const kImageText[] = {"aW1hZ2U="};
const Base64Image kImage = {kImageText, 1, 5};

int mock_count(const char* function) {
  void* mock = dlopen(std::getenv("KERNELPACK_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
  EXPECT(mock != nullptr);
  return reinterpret_cast<int (*)(const char*)>(dlsym(mock, "mock_count"))(function);
}

const unsigned* mock_last_launch() {
  void* mock = dlopen(std::getenv("KERNELPACK_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<const unsigned* (*)()>(dlsym(mock, "mock_last_launch"))();
}

void cuda_kernels_load_once_from_any_thread() {
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

void cuda_clusters_multiply_the_grid() {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 2, 0, 0};
  cuda_launcher.launch(kernel, 0, nullptr, {3, 1, 1}, nullptr);
  EXPECT(mock_last_launch()[0] == 6 && mock_last_launch()[7] == 1);
  EXPECT(mock_count("cuFuncSetAttribute") == 0);
}

void cuda_refuses_what_a_device_cannot_do() {
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

void* mock_symbol(const char* name) {
  return dlsym(dlopen(std::getenv("KERNELPACK_LIBCUDA"), RTLD_NOW), name);
}

// The maps of a kernel of a pointer and an i32: a matrix of n rows and 64 columns, and what is behind its first n + 3 rows
// of 4.
const char* const kMaps =
    "pi\nbf16; base: $0; sizes: $1, 64; strides: 64; box: 128, 32; swizzle: 64; padding: zero\n"
    "f32; base: $0 $1 3 + 16 * +; sizes: 2, $1 2 / 1 >?, 100 7 % $1 <?; strides: $1 8 * 4 -, 4; box: 1, 8, 4; swizzle: 0; "
    "padding: nan\n";

void cuda_tensor_maps_are_encoded_at_each_launch() {
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

void cuda_empty_tensors_read_as_padding() {
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

void cuda_tensors_that_maps_cannot_describe() {
  const auto launch = [](const char* maps, uint64_t address, int n) {
    Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, maps};
    void* params[] = {&address, &n};
    cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, params);
  };
  const char* const rows = "pi\nf16; base: $0; sizes: 7, 40; strides: $1; box: 2, 8; swizzle: 0; padding: zero";
  const std::string tensor = "k cannot describe a tensor of sizes [7, 40], strides ";
  expect_error(tensor + "[80] bytes, in blocks of [2, 8] to the GPU: its address is no multiple of 16\n  to fix: pass a tensor",
               [&] { launch(rows, 0x1008, 40); });
  expect_error(tensor + "[82] bytes, in blocks of [2, 8] to the GPU: its strides are no multiples of 16 bytes",
               [&] { launch(rows, 0x1000, 41); });
  expect_error("its strides are not between 0 and 2^40 bytes", [&] { launch(rows, 0x1000, -8); });
  expect_error("its sizes are not between 0 and 2^32",
               [&] { launch("pi\nf16; base: $0; sizes: $1; strides: ; box: 8; swizzle: 0; padding: zero", 0x1000, -1); });
  for (const char* broken : {"pi\nf16; base: $0", "pi\nf17; base: $0; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
                             "pi\nf16; base: $2; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
                             "xi\nf16; base: $0; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
                             "pi\nf16; base: $0 +; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
                             "pi\nf16; base: $0 $1; sizes: 8; strides: ; box: 8; swizzle: 0; padding: zero",
                             "pi\nf16; base: $0; sizes: 8, 8; strides: ; box: 8, 8; swizzle: 0; padding: zero"}) {
    expect_error("the record of a tensor map is malformed", [&] { launch(broken, 0x1000, 1); });
  }
  EXPECT(mock_count("cuLaunchKernelEx") == 0);
}

void cuda_driver_refuses_a_tensor_map() {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, kMaps};
  uint64_t address = 0x1000;
  int n = 8;
  void* params[] = {&address, &n};
  expect_error(
      "cuTensorMapEncodeTiled failed with an unknown CUresult (77, no description) while describing a tensor of sizes [8, 64], "
      "strides [128] bytes, in blocks of [128, 32] for k",
      [&] { cuda_launcher.launch(kernel, 0, nullptr, {2, 1, 1}, params); });
}

void cuda_targets_fit_the_device() {
  const auto chosen = [](std::vector<const char*> targets) {
    const int index = cuda_launcher.choose(targets.data(), static_cast<int>(targets.size()), 0, true);
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

void cuda_targets_by_order_of_preference() {
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
  EXPECT(chosen(90, 13000, {"cuda:sm_80", "cuda:sm_80+ptx"}) == "cuda:sm_80+ptx");
  EXPECT(chosen(75, 13000, all) == "none");
  EXPECT(chosen(103, 13000, {"cuda:sm_100a", "cuda:sm_90a"}) == "none");
  EXPECT(chosen(90, 13000, {"cpu:x86-64", "cuda:sm_90b", "cuda:sm_90a+ptx"}) == "none");
  EXPECT(chosen(90, 13000, {}) == "none");
}

void cuda_device_that_nothing_was_built_for() {
  const char* const targets[] = {"cuda:sm_100a", "cuda:sm_80"};
  EXPECT(cuda_launcher.choose(targets, 2, 0, false) == -1);
  EXPECT(no_target_fits(cuda_launcher, targets, 2, 0, "kernelpack build ops") ==
         "this library holds no code for Mock GPU (compute capability 9.0, driver for CUDA 13.0); it holds cuda:sm_100a, "
         "cuda:sm_80"
         "\n  to fix: kernelpack build ops --target cuda:sm_90");
}

void cuda_errors_name_result_and_cure() {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  expect_error(
      "cuLaunchKernelEx failed with CUDA_ERROR_ILLEGAL_ADDRESS (700, an illegal memory access was encountered) while launching "
      "k "
      "(cuda:sm_90a) with grid (2, 1, 1), 128 threads, 0 bytes of shared memory\n  to fix: the kernel accessed memory",
      [&] { cuda_launcher.launch(kernel, 0, nullptr, {2, 1, 1}, nullptr); });
}

void cuda_driver_that_finds_no_gpu() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_error(
        "cuInit failed with CUDA_ERROR_NO_DEVICE (100, no description) while starting the CUDA driver\n  to fix: no GPU is "
        "visible",
        [] { cuda_launcher.describe(0); });
  }
}

void cuda_driver_that_is_too_old() {
  expect_error("the CUDA driver has no cuCtxGetId: it is older than 12.0\n  to fix: update the driver",
               [] { cuda_launcher.describe(0); });
}

void cuda_driver_that_is_missing() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    expect_error("the CUDA driver cannot be opened: ", [] { cuda_launcher.describe(0); });
    expect_error("to fix: install the NVIDIA driver on this machine, or set KERNELPACK_LIBCUDA",
                 [] { cuda_launcher.describe(0); });
  }
}

// What the driver answers from now on, `function=result`, "" for its own answers.
void mock_fail(const std::string& what) {
  reinterpret_cast<void (*)(const char*)>(mock_symbol("mock_fail"))(what.c_str());
}

void cuda_every_error_of_every_function_is_told_and_survived() {
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
      cuda_launcher.launch(kernel, device, nullptr, {2, 1, 1}, params);  // nothing is left behind
      EXPECT(mock_count("cuLaunchKernelEx") == before + 1);
    }
  }
}

void cuda_launches_ask_the_driver_for_the_context_alone() {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0, nullptr, true};
  reinterpret_cast<int (*)(void*)>(mock_symbol("cuCtxSetCurrent"))(nullptr);
  cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
  void* primary = nullptr;
  reinterpret_cast<int (*)(void**, int)>(mock_symbol("cuDevicePrimaryCtxRetain"))(&primary, 0);
  reinterpret_cast<int (*)(void*)>(mock_symbol("cuCtxSetCurrent"))(primary);
  const auto total = [] {
    int all = 0;
    for (const char* function :
         {"cuDeviceGet", "cuDeviceGetAttribute", "cuCtxGetDevice", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuStreamIsCapturing",
          "cuModuleLoadData", "cuModuleGetFunction", "cuDevicePrimaryCtxGetState"}) {
      all += mock_count(function);
    }
    return all;
  };
  const int before = total(), contexts = mock_count("cuCtxGetCurrent");
  for (int i = 0; i < 10; ++i) cuda_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr);
  EXPECT(total() == before);
  EXPECT(mock_count("cuCtxGetCurrent") == contexts + 10);
}

void cuda_a_hosts_own_context_is_used() {
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 1, 0, 0};
  void* own = reinterpret_cast<void* (*)()>(mock_symbol("mock_own_context"))();  // of device 2
  reinterpret_cast<int (*)(void*)>(mock_symbol("cuCtxSetCurrent"))(own);
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

void cuda_nothing_is_loaded_during_a_capture() {
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

void cuda_attributes_of_launches() {
  const auto attribute = reinterpret_cast<const int* (*)(int)>(mock_symbol("mock_last_attribute"));
  Kernel kernel{"k", "k", "cuda:sm_90a", &kImage, 4, 2, 0, 0, nullptr, true, true};
  cuda_launcher.launch(kernel, 0, nullptr, {3, 1, 1}, nullptr);
  EXPECT(mock_last_launch()[7] == 3);
  EXPECT(attribute(0)[0] == 4 && attribute(0)[1] == 2);  // a cluster of two blocks
  EXPECT(attribute(1)[0] == 6 && attribute(1)[1] == 1);  // programmatic dependent launch
  EXPECT(attribute(2)[0] == 2 && attribute(2)[1] == 1);  // cooperative
  mock_fail("cuLaunchKernelEx=720");
  expect_error("all programs of a cooperative launch run at once",
               [&] { cuda_launcher.launch(kernel, 0, nullptr, {3, 1, 1}, nullptr); });
  expect_error("of which x counts 2 blocks a program",
               [&] { cuda_launcher.launch(kernel, 0, nullptr, {int64_t{1} << 30, 1, 1}, nullptr); });
}

void cuda_a_forked_process_is_told() {
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

// -- the C entry points that builds generate, for a kernel called k of a library called fake ------------------------------

void c_entries_load_once_however_many_threads_call_first() {
  std::vector<std::thread> callers;
  std::atomic<int> waiting{8};
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      alignas(16) float x = 0;
      for (int launch = 0; launch < 10; ++launch) failures += fake_launch_k(0, nullptr, 1, 1, 1, &x, 32);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT(failures == 0);
  EXPECT(mock_count("cuInit") == 1 && mock_count("cuModuleLoadData") == 1 && mock_count("cuModuleGetFunction") == 1);
  EXPECT(mock_count("cuLaunchKernelEx") == 80);
}

void c_entries_give_errors_as_text_of_their_thread() {
  alignas(16) float x = 0;
  mock_fail("cuModuleLoadData=2");
  EXPECT(fake_launch_k(0, nullptr, 1, 1, 1, &x, 32) == 1);
  const std::string said = fake_kernels_error();
  EXPECT(said.find("cuModuleLoadData failed with CUDA_ERROR_OUT_OF_MEMORY (2, out of memory) while loading k") == 0);
  EXPECT(said.find("to fix: free GPU memory") != std::string::npos);
  std::thread([] { EXPECT(std::string(fake_kernels_error()).empty()); }).join();
  mock_fail("");
  EXPECT(fake_launch_k(0, nullptr, 1, 1, 1, &x, 32) == 0);
  EXPECT(fake_launch_k(0, nullptr, 1, 65536, 1, &x, 32) == 1);
  EXPECT(fake_launch_k(0, nullptr, 0, 1, 1, &x, 32) == 0);                               // an empty grid
  EXPECT(fake_launch_k(0, nullptr, 1, 1, 1, reinterpret_cast<char*>(&x) + 4, 32) == 1);  // the code assumes alignment
  EXPECT(mock_count("cuLaunchKernelEx") == 1);
}

#define TEST(name) {#name, name}
const std::map<std::string, void (*)()> kTests = {
    TEST(every_program_runs_once),
    TEST(small_launches_run_on_the_calling_thread),
    TEST(pieces_are_long_enough_and_balance),
    TEST(workers_start_with_programs_of_their_own_and_help_others),
    TEST(empty_grids_run_nothing),
    TEST(grids_out_of_range_are_refused),
    TEST(launches_from_many_threads_do_not_mix),
    TEST(a_forked_process_launches),
    TEST(the_best_level_that_the_cpu_has_is_chosen),
    TEST(the_knob_forces_a_level),
    TEST(the_variant_that_assumes_most_and_may_is_found),
    TEST(values_that_were_not_built_have_no_place),
    TEST(base64_of_other_sizes_and_letters_is_refused),
    TEST(arithmetic_has_pythons_meaning),
    TEST(cuda_kernels_load_once_from_any_thread),
    TEST(cuda_clusters_multiply_the_grid),
    TEST(cuda_refuses_what_a_device_cannot_do),
    TEST(cuda_tensor_maps_are_encoded_at_each_launch),
    TEST(cuda_empty_tensors_read_as_padding),
    TEST(cuda_tensors_that_maps_cannot_describe),
    TEST(cuda_driver_refuses_a_tensor_map),
    TEST(cuda_targets_fit_the_device),
    TEST(cuda_targets_by_order_of_preference),
    TEST(cuda_device_that_nothing_was_built_for),
    TEST(cuda_errors_name_result_and_cure),
    TEST(cuda_every_error_of_every_function_is_told_and_survived),
    TEST(cuda_launches_ask_the_driver_for_the_context_alone),
    TEST(cuda_a_hosts_own_context_is_used),
    TEST(cuda_nothing_is_loaded_during_a_capture),
    TEST(cuda_attributes_of_launches),
    TEST(cuda_a_forked_process_is_told),
    TEST(c_entries_load_once_however_many_threads_call_first),
    TEST(c_entries_give_errors_as_text_of_their_thread),
    TEST(cuda_driver_that_finds_no_gpu),
    TEST(cuda_driver_that_is_too_old),
    TEST(cuda_driver_that_is_missing),
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    for (const auto& [name, test] : kTests) std::cout << name << "\n";
    return 0;
  }
  kTests.at(arguments[1])();
  return 0;
}
