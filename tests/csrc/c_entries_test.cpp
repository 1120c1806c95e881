// The C entry points that builds generate, for a kernel called k of a library called fake.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"
#include "fake_kernels.h"
#include "mock_cuda.h"

namespace {

TEST(c_entries_load_once_however_many_threads_call_first) {
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

TEST(c_entries_give_errors_as_text_of_their_thread) {
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

}  // namespace
