// The CPU launcher: which level this CPU has, and how a grid is spread over threads.
#include "kernels/cpu.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sys/auxv.h>
#endif

#include "kernels/linked_code.h"

namespace kernelpack {
namespace {

// A launch shorter than this runs on the calling thread: waking a second one costs 0.5 to 6 us.
constexpr double kSerialNs = 10'000;
// A piece that one thread takes at a time should last about this long, so that taking it costs nothing.
constexpr double kPieceNs = 4'000;

struct Feature {
  const char* name;
  bool (*present)();
  bool (*pays)();  // where it is present but slows products down, they prefer targets without it
};

bool always() {
  return true;
}

#if defined(__x86_64__)
// Returns why this process cannot use the tiles of AMX, or an empty text. Linux is asked for them once a process; a forked one
// has what its parent was granted, and so do threads.
const std::string& missing_tiles() {
  static const std::string missing = []() -> std::string {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16") || !__builtin_cpu_supports("amx-int8")) {
      return "this CPU has no AMX";
    }
    if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return "";
    return std::string("Linux does not let this process use the tiles of AMX: ") + std::strerror(errno);
  }();
  return missing;
}

constexpr const char* kLowest = "cpu:x86-64";
constexpr const char* kLevels[] = {"cpu:x86-64-v2",
                                   "cpu:x86-64-v3",
                                   "cpu:x86-64-v3+avxvnni",
                                   "cpu:x86-64-v4",
                                   "cpu:x86-64-v4+avx512vnni",
                                   "cpu:x86-64-v4+avx512bf16",
                                   "cpu:x86-64-v4+amx"};
// The parts of a CPU target's name. __builtin_cpu_supports takes literals only.
const Feature kFeatures[] = {
    {"x86-64", always, always},
    {"x86-64-v2", [] { return __builtin_cpu_supports("x86-64-v2") != 0; }, always},
    {"x86-64-v3", [] { return __builtin_cpu_supports("x86-64-v3") != 0; }, always},
    {"avxvnni", [] { return __builtin_cpu_supports("avxvnni") != 0; }, always},
    {"x86-64-v4", [] { return __builtin_cpu_supports("x86-64-v4") != 0; }, always},
    {"avx512vnni", [] { return __builtin_cpu_supports("avx512vnni") != 0; }, always},
    // the level has VNNI too. dpbf16ps runs at full rate on AMD; on Intel at a quarter of it, slower than fp32 arithmetic
    {"avx512bf16", [] { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"); },
     [] { return __builtin_cpu_is("amd") != 0; }},
    {"amx", [] { return missing_tiles().empty(); }, always},
};
#else
const std::string& missing_tiles() {
  static const std::string missing = "this CPU has no AMX";
  return missing;
}

constexpr const char* kLowest = "an ARM CPU before ARMv8.2";
constexpr const char* kLevels[] = {"cpu:aarch64", "cpu:aarch64+bf16", "cpu:aarch64+sve2"};

// Linux's bits of AT_HWCAP and AT_HWCAP2, which older headers do not name.
constexpr unsigned long kAtomics = 1UL << 8, kDotProduct = 1UL << 20, kSve2 = 1UL << 1, kI8mm = 1UL << 13, kBf16 = 1UL << 14;

bool has(unsigned long basic, unsigned long more) {
  return (getauxval(AT_HWCAP) & basic) == basic && (getauxval(AT_HWCAP2) & more) == more;
}

const Feature kFeatures[] = {
    {"aarch64", [] { return has(kAtomics, 0); }, always},
    {"bf16", [] { return has(kDotProduct, kI8mm | kBf16); }, always},
    {"sve2", [] { return has(kDotProduct, kI8mm | kBf16 | kSve2); }, always},
};
#endif

bool needs_tiles(const char* target) {
  return std::strstr(target, "+amx") != nullptr;
}

// Returns what a target is worth if this CPU has all its parts, else -1. A part that is later in the table is worth more.
int score(const char* target, bool products) {
  const char* at = std::strchr(target, ':');
  int total = 0;
  while (at != nullptr && *at != '\0') {
    ++at;
    const size_t length = std::strcspn(at, "+");
    bool found = false;
    for (size_t i = 0; i < std::size(kFeatures); ++i) {
      const Feature& feature = kFeatures[i];
      if (std::strlen(feature.name) == length && std::strncmp(feature.name, at, length) == 0 && feature.present()) {
        total += !products || feature.pays() ? 1 << i : -1;
        found = true;
      }
    }
    if (!found) return -1;
    at += length;
  }
  return total;
}

int choose(const char* const* targets, int count, int /*device*/, const KernelTraits& kernel) {
  const char* forced = std::getenv("KERNELPACK_CPU_TARGET");
  int best = -1;
  int best_score = -1;
  for (int i = 0; i < count; ++i) {
    const int worth = score(targets[i], kernel.products);
    if (forced != nullptr && *forced != '\0') {
      if (std::strcmp(forced, targets[i]) == 0) {
        if (worth < 0) {
          const std::string why = needs_tiles(forced) && !missing_tiles().empty() ? ": " + missing_tiles() : "";
          throw Error(std::string("KERNELPACK_CPU_TARGET asks for ") + forced + ", which this CPU cannot run" + why +
                      "\n  to fix: unset it, for the best level that the CPU has");
        }
        return i;
      }
    } else if (worth > best_score) {
      best = i;
      best_score = worth;
    }
  }
  if (forced != nullptr && *forced != '\0') {
    std::string built;
    for (int i = 0; i < count; ++i) built += std::string(i ? ", " : "") + targets[i];
    throw Error(std::string("KERNELPACK_CPU_TARGET asks for ") + forced + ", the library holds " + built +
                "\n  to fix: set it to one of them, or unset it");
  }
  return best;
}

std::string describe(int /*device*/) {
  std::string best = kLowest;
  for (const char* level : kLevels) {
    if (score(level, false) >= 0) best = level;
  }
  return best;
}

// Kernels are linked in, and ready where the CPU is.
void load(Kernel& kernel, int /*device*/) {
  linked_code::check();
  if (needs_tiles(kernel.target)) allow_tiles(kernel.name);
  kernel.loaded.store(&kernel, std::memory_order_relaxed);
}

void launch(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params) {
  if (kernel.loaded.load(std::memory_order_relaxed) == nullptr) load(kernel, device);
  const auto entry = reinterpret_cast<CpuEntry>(const_cast<void*>(kernel.image));
  if (kernel.launch_cooperative_grid) return run_together_on_cpu(entry, grid, params);
  run_on_cpu(entry, kernel.program_ns, static_cast<const ParallelFor*>(stream), grid, params);
}

// More programs than this never wait for each other on a GPU either: it runs so many at once.
constexpr int64_t kMostTogether = 4096;

// The programs that one thread starts with; whoever takes the next piece moves `next`.
struct alignas(64) Range {
  std::atomic<int64_t> next;
  int64_t end;
};

// More threads than this share ranges.
constexpr int64_t kMostRanges = 128;

// A launch that threads share. Each takes pieces of a range of its own, the same in every launch of a grid, so that what it
// wrote the last time is in its cache; when that is done it helps with the others, so that programs of unequal length balance.
struct Shared {
  CpuEntry entry;
  CpuLaunch launch;
  int64_t piece;
  int64_t range_count;
  Range ranges[kMostRanges];
};

void take_pieces(int64_t worker, int64_t /*end*/, void* argument) {
  Shared& work = *static_cast<Shared*>(argument);
  for (int64_t i = 0; i < work.range_count; ++i) {
    Range& range = work.ranges[(worker + i) % work.range_count];
    while (range.next.load(std::memory_order_relaxed) < range.end) {
      const int64_t begin = range.next.fetch_add(work.piece, std::memory_order_relaxed);
      if (begin < range.end) work.entry(begin, std::min(begin + work.piece, range.end), &work.launch);
    }
  }
}

int64_t programs_of(const Grid& grid) {
  const int64_t limit = INT32_MAX;
  if (grid.x < 0 || grid.y < 0 || grid.z < 0 || grid.x > limit || grid.y > limit || grid.z > limit) {
    throw Error("grid (" + std::to_string(grid.x) + ", " + std::to_string(grid.y) + ", " + std::to_string(grid.z) +
                ") is negative or larger than 2^31 - 1 in one dimension");
  }
  int64_t count = 0;
  if (__builtin_mul_overflow(grid.x * grid.y, grid.z, &count)) throw Error("the grid has more than 2^63 programs");
  return count;
}

// Called when no thread runs programs of the launch any more.
void check_failures(const CpuLaunch& launch) {
  if (launch.failed == nullptr) return;
  if (launch.parameter >= 0) throw AccessOutside(launch.failed, launch.address, launch.parameter);
  throw RunTimeAssertionFailure(launch.failed);
}

}  // namespace

const Launcher cpu_launcher = {"cpu", choose, describe, load, launch, nullptr, nullptr, true};

void allow_tiles(const char* kernel) {
  if (missing_tiles().empty()) return;
  throw Error(std::string("kernel ") + kernel + " is for cpu:x86-64-v4+amx; " + missing_tiles() +
              "\n  to fix: compile it for another level, or run it where Linux (5.16 or later) grants tiles");
}

void run_on_cpu(CpuEntry entry, double program_ns, const ParallelFor* threads, const Grid& grid, void* const* params) {
  const int64_t count = programs_of(grid);
  if (count == 0) return;
  const CpuLaunch launch = {params,
                            {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y), static_cast<uint32_t>(grid.z)}};
  const double estimate = program_ns > 0 ? program_ns : 1'000;
  const bool is_short = count == 1 || static_cast<double>(count) * estimate < kSerialNs;
  const int thread_count = threads == nullptr || is_short ? 1 : threads->num_threads(threads->context);
  if (thread_count <= 1) {
    entry(0, count, &launch);
    check_failures(launch);
    return;
  }
  const int64_t workers = std::min<int64_t>(thread_count, count);
  const int64_t by_time = static_cast<int64_t>(std::max(1.0, kPieceNs / estimate));
  const int64_t by_count = std::max<int64_t>(1, count / (workers * 4));
  Shared work;
  work.entry = entry;
  work.launch = launch;
  work.piece = std::min(by_time, by_count);
  work.range_count = std::min(workers, kMostRanges);
  for (int64_t i = 0; i < work.range_count; ++i) {
    work.ranges[i].next.store(count * i / work.range_count, std::memory_order_relaxed);
    work.ranges[i].end = count * (i + 1) / work.range_count;
  }
  threads->run(threads->context, workers, take_pieces, &work);
  check_failures(work.launch);
}

void run_together_on_cpu(CpuEntry entry, const Grid& grid, void* const* params) {
  const int64_t count = programs_of(grid);
  if (count > kMostTogether) {
    throw Error("the programs of this kernel wait for each other, so all of them must run at once; the grid has " +
                std::to_string(count) + ", a CPU runs at most " + std::to_string(kMostTogether) +
                "\n  to fix: give a smaller grid");
  }
  const CpuLaunch launch = {params,
                            {static_cast<uint32_t>(grid.x), static_cast<uint32_t>(grid.y), static_cast<uint32_t>(grid.z)}};
  // Programs start when all threads are there: where one cannot be made, none has run.
  std::promise<bool> start;
  const std::shared_future<bool> started = start.get_future().share();
  std::vector<std::thread> threads;
  const auto finish = [&](bool runs) {
    start.set_value(runs);
    for (std::thread& thread : threads) thread.join();
  };
  try {
    threads.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      threads.emplace_back([entry, i, started, &launch] {
        if (started.get()) entry(i, i + 1, &launch);
      });
    }
  } catch (const std::system_error& error) {
    finish(false);
    throw Error("the programs of this kernel wait for each other, so all of them must run at once; the grid has " +
                std::to_string(count) + ", threads could be made for " + std::to_string(threads.size()) + " (" + error.what() +
                ")\n  to fix: give a smaller grid");
  }
  finish(true);
  check_failures(launch);
}

}  // namespace kernelpack
