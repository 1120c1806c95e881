// The CPU launcher: kernels are functions linked into this library; programs are spread over the caller's threads.
#pragma once

#include "kernels/kernel.h"

namespace kernelpack {

// What a CPU kernel is told of a launch. Its layout is part of the kernel ABI.
struct CpuLaunch {
  void* const* params;
  uint32_t grid[3];
  // What a failed assertion says, or what an access outside of its tensor is: a program that has one leaves it here and
  // returns. Threads may do so at once; of accesses the first one counts.
  mutable const char* failed = nullptr;
  mutable uint64_t address = 0;    // of the access
  mutable int64_t parameter = -1;  // the number of the pointer that led there; -1: an assertion
};

// Runs the programs [begin, end) of a launch, numbered with x fastest.
using CpuEntry = void (*)(int64_t begin, int64_t end, const CpuLaunch* launch);

// How a CPU launch gets threads. A null pointer in its place means the calling thread alone.
struct ParallelFor {
  // Returns how many threads `run` may use.
  int (*num_threads)(void* context);
  // Calls body(i, i + 1, argument), or larger pieces, until [0, count) is done; may use threads. Body throws nothing.
  void (*run)(void* context, int64_t count, void (*body)(int64_t begin, int64_t end, void* argument), void* argument);
  void* context;
};

extern const Launcher cpu_launcher;

// Asks Linux for the tiles of AMX, which kernels for targets with +amx need, the first time in a process. Throws Error where
// this CPU has none or Linux refuses.
void allow_tiles(const char* kernel);

// Runs all programs of a grid. The serial-or-parallel rule of the CPU launcher, for launches outside a library too. Throws
// RunTimeAssertionFailure, when the threads are done, where an assertion of the kernel failed, AccessOutside where a checked
// kernel was about to leave a tensor.
void run_on_cpu(CpuEntry entry, double program_ns, const ParallelFor* threads, const Grid& grid, void* const* params);

// Runs all programs of a grid at once, each on a thread of its own: they wait for each other. Throws Error where they are too
// many, and what run_on_cpu throws.
void run_together_on_cpu(CpuEntry entry, const Grid& grid, void* const* params);

}  // namespace kernelpack
