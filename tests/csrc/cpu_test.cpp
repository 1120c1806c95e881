// The CPU launcher: how programs are spread over threads, and which level is chosen.
#include "kernels/cpu.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "expect.h"

using namespace kernelpack;

namespace {

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

TEST(every_program_runs_once) {
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

TEST(small_launches_run_on_the_calling_thread) {
  Threads threads{8};
  EXPECT(pieces_of({99, 1, 1}, 100, &threads) == 1);  // 9.9 us
  EXPECT(pieces_of({1, 1, 1}, 1e9, &threads) == 1);   // one program has nothing to share
  EXPECT(threads.asked == 0);
  EXPECT(pieces_of({101, 1, 1}, 100, &threads) > 1);  // 10.1 us
  EXPECT(threads.asked == 1);
}

TEST(pieces_are_long_enough_and_balance) {
  Threads threads{4};
  EXPECT(pieces_of({64, 1, 1}, 1e6, &threads) == 64);      // programs of a millisecond are taken one by one
  EXPECT(pieces_of({100000, 1, 1}, 10, &threads) == 252);  // 4 us each, cut where ranges end
  EXPECT(pieces_of({32, 1, 1}, 400, &threads) == 16);      // at least four for each thread
}

// Runs one worker after the other, the last one first.
void run_backwards(void*, int64_t count, void (*body)(int64_t, int64_t, void*), void* argument) {
  for (int64_t i = count; i-- > 0;) body(i, i + 1, argument);
}

TEST(workers_start_with_programs_of_their_own_and_help_others) {
  ranges.clear();
  Threads threads{4};
  const ParallelFor parallel{num_threads, run_backwards, &threads};
  run_on_cpu(record, 1e6, &parallel, {64, 1, 1}, nullptr);
  EXPECT(ranges.size() == 64);
  EXPECT(ranges.front().first == 48);  // the last worker's own quarter,
  EXPECT(ranges[16].first == 0);       // then its neighbour's
}

TEST(empty_grids_run_nothing) {
  Threads threads{4};
  for (const Grid& grid : {Grid{0, 1, 1}, Grid{5, 0, 1}, Grid{5, 5, 0}, Grid{0, 0, 0}})
    EXPECT(pieces_of(grid, 1e6, &threads) == 0);
  EXPECT(threads.asked == 0);
}

TEST(grids_out_of_range_are_refused) {
  for (const Grid& grid : {Grid{-1, 1, 1}, Grid{1, -7, 1}, Grid{int64_t{1} << 31, 1, 1}, Grid{1, 1, int64_t{1} << 40}}) {
    expect_error("is negative or larger than 2^31 - 1", [&] { pieces_of(grid, 1, nullptr); });
  }
  const int64_t most = INT32_MAX;
  expect_error("more than 2^63 programs", [&] { run_on_cpu(record, 1, nullptr, {most, most, most}, nullptr); });
}

TEST(a_failed_assertion_of_any_thread_is_an_error) {
  static const char* const message = "i must be small";
  const auto assert_small = [](int64_t begin, int64_t end, const CpuLaunch* launch) {
    for (int64_t i = begin; i < end; ++i) {
      if (i % 1000 == 999) {
        __atomic_store_n(&launch->failed, message, __ATOMIC_RELAXED);
        return;
      }
    }
  };
  for (int count : {1, 4}) {
    Threads threads{count};
    const ParallelFor parallel{num_threads, run_in_threads, &threads};
    run_on_cpu(assert_small, 1e5, &parallel, {999, 1, 1}, nullptr);
    expect_error("i must be small", [&] { run_on_cpu(assert_small, 1e5, &parallel, {9000, 1, 1}, nullptr); });
  }
}

TEST(launches_from_many_threads_do_not_mix) {
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

TEST(a_forked_process_launches) {
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

#if defined(__x86_64__)
bool has_amx() {
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-int8");
}
#endif

TEST(the_best_level_that_the_cpu_has_is_chosen) {
  unsetenv("KERNELPACK_CPU_TARGET");
#if defined(__x86_64__)
  const char* const two[] = {"cpu:x86-64-v2", "cpu:x86-64"};
  EXPECT(cpu_launcher.choose(two, 2, 0, {true}) == (__builtin_cpu_supports("x86-64-v2") ? 0 : 1));
  const char* const levels[] = {"cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4"};
  const int expected = __builtin_cpu_supports("x86-64-v4") ? 2 : __builtin_cpu_supports("x86-64-v3") ? 1 : 0;
  EXPECT(cpu_launcher.choose(levels, 3, 0, {true}) == expected);
  const char* const halves[] = {"cpu:x86-64-v4", "cpu:x86-64-v4+avx512bf16"};
  const char* const bytes[] = {"cpu:x86-64-v3+avxvnni", "cpu:x86-64-v4", "cpu:x86-64-v4+avx512vnni"};
  if (__builtin_cpu_supports("avx512vnni")) EXPECT(cpu_launcher.choose(bytes, 3, 0, {true}) == 2);
  EXPECT((cpu_launcher.choose(bytes, 1, 0, {true}) == 0) == (__builtin_cpu_supports("avxvnni") != 0));
  if (__builtin_cpu_supports("avx512bf16")) {  // its products are slow on Intel, its conversions never
    EXPECT(cpu_launcher.choose(halves, 2, 0, {false}) == 1);
    EXPECT(cpu_launcher.choose(halves, 2, 0, {true}) == (__builtin_cpu_is("amd") ? 1 : 0));
  }
  const char* const tiled[] = {"cpu:x86-64-v4", "cpu:x86-64-v4+amx"};
  if (has_amx()) {
    EXPECT(cpu_launcher.choose(tiled, 2, 0, {true}) == 1);
    allow_tiles("matmul");
  } else {
    EXPECT(cpu_launcher.choose(tiled + 1, 1, 0, {true}) == -1);
    expect_error("kernel matmul is for cpu:x86-64-v4+amx; this CPU has no AMX", [] { allow_tiles("matmul"); });
    Kernel kernel{"matmul", "matmul", tiled[1], nullptr};
    expect_error("kernel matmul is for cpu:x86-64-v4+amx; this CPU has no AMX",
                 [&] { cpu_launcher.launch(kernel, 0, nullptr, {1, 1, 1}, nullptr); });
    setenv("KERNELPACK_CPU_TARGET", tiled[1], 1);
    expect_error("asks for cpu:x86-64-v4+amx, which this CPU cannot run: this CPU has no AMX",
                 [&] { cpu_launcher.choose(tiled, 2, 0, {true}); });
    unsetenv("KERNELPACK_CPU_TARGET");
  }
  const char* const other[] = {"cpu:x86-64+no-such-feature", "cpu:aarch64"};
  EXPECT(cpu_launcher.choose(other, 2, 0, {true}) == -1);
  const std::string best = cpu_launcher.describe(0);
  const char* const described[] = {best.c_str()};
  EXPECT(cpu_launcher.choose(described, 1, 0, {true}) == 0);
#else
  // who runs the test says what this CPU has
  const std::string expected = std::getenv("ARM_LEVEL");
  const char* const levels[] = {"cpu:aarch64", "cpu:aarch64+bf16", "cpu:aarch64+sve2"};
  const int chosen = cpu_launcher.choose(levels, 3, 0, {true});
  EXPECT((chosen < 0 ? "an ARM CPU before ARMv8.2" : levels[chosen]) == expected);
  EXPECT(cpu_launcher.describe(0) == expected);
#endif
}

TEST(the_knob_forces_a_level) {
#if defined(__x86_64__)
  const char* const levels[] = {"cpu:x86-64", "cpu:x86-64-v2", "cpu:x86-64+no-such-feature"};
#else
  const char* const levels[] = {"cpu:aarch64", "cpu:aarch64+bf16", "cpu:aarch64+no-such-feature"};
#endif
  setenv("KERNELPACK_CPU_TARGET", levels[0], 1);
  EXPECT(cpu_launcher.choose(levels, 3, 0, {true}) == 0);
  setenv("KERNELPACK_CPU_TARGET", "", 1);
  EXPECT(cpu_launcher.choose(levels, 2, 0, {true}) == 1);
  setenv("KERNELPACK_CPU_TARGET", "cpu:x86-64-v9", 1);
  expect_error(std::string("KERNELPACK_CPU_TARGET asks for cpu:x86-64-v9, the library holds ") + levels[0] + ", " + levels[1],
               [&] { cpu_launcher.choose(levels, 2, 0, {true}); });
  setenv("KERNELPACK_CPU_TARGET", levels[2], 1);
  expect_error("which this CPU cannot run", [&] { cpu_launcher.choose(levels, 3, 0, {true}); });
}

}  // namespace
