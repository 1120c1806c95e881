// What build, loaders and launchers agree on: a compiled kernel, and how one is launched. Knows nothing of torch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace kernelpack {

// Every error of this layer.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A run-time assertion of a kernel that does not hold.
class RunTimeAssertionFailure : public Error {
 public:
  using Error::Error;
};

// An access of a checked kernel outside of the storage of its tensor, which was not made. what() says the line, and through
// which parameter it goes: `parameter` is its number among the kernel's.
class AccessOutside : public Error {
 public:
  AccessOutside(const char* access, uint64_t to, int64_t through) : Error(access), address(to), parameter(through) {}
  uint64_t address;
  int64_t parameter;
};

// How many programs run along each dimension.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

// An image that a launcher loads: its bytes, or what they are made of again.
struct Image {
  const unsigned char* bytes;  // what is stored
  uint32_t stored;             // how many bytes that is
  uint32_t size;               // how many bytes the image has
  // Returns the image, followed by a NUL so that PTX text is a C string. Throws Error. Null: `bytes` are the image.
  const unsigned char* (*unpack)(Image& image) = nullptr;
  Image* like = nullptr;  // the image in terms of which this one is stored
  // What was unpacked: kept, since each device and context loads it.
  std::atomic<const unsigned char*> unpacked{nullptr};

  const unsigned char* get() {
    const unsigned char* known = unpacked.load(std::memory_order_acquire);
    return known != nullptr ? known : unpack != nullptr ? unpack(*this) : bytes;
  }
};

// One compiled kernel: a row that the build writes from a kernel pack. `image` is what the launcher of its backend
// loads: a CpuEntry, an Image, or what a backend of a third party puts there.
struct Kernel {
  const char* name;    // the variant, e.g. mha_fwd-f16-64.aligned
  const char* entry;   // the kernel's symbol in the image; nullptr where the image is its code
  const char* target;  // e.g. cuda:sm_90a
  const void* image;
  int32_t num_warps = 1;
  int32_t num_ctas = 1;
  int64_t shared_memory = 0;  // bytes of dynamic shared memory
  double program_ns = 0;      // estimated time of one program; 0: unknown
  // The descriptors of tensors that the launcher makes of the parameters and passes after them, as text that it reads: a line
  // with a letter for each parameter, p for a pointer, then a line for each descriptor, in which `$i` is parameter i
  // (kernelpack/descriptors.py); nullptr: none.
  const char* descriptors = nullptr;
  // Whether it may start while the launch before it on the stream still runs: it waits by itself for what that leaves.
  bool launch_pdl = false;
  // Whether all its programs run at once, so that they may wait for each other.
  bool launch_cooperative_grid = false;
  // What a launcher keeps here; nullptr until the kernel is loaded.
  std::atomic<void*> loaded{nullptr};
};

// What is known of all variants of a launch's kernel: what a launcher may choose a target by.
struct KernelTraits {
  bool products = false;  // it multiplies matrices

  // How many kinds of kernels there are, and which one this is: what was chosen for one of a kind holds for all.
  static constexpr int kKinds = 2;
  constexpr int kind() const { return products ? 1 : 0; }
};

// A backend's loader and launcher. `params[i]` points to the value of run-time parameter i in its natural C type.
struct Launcher {
  const char* backend;  // the first part of its targets
  // Returns which of the targets runs a kernel best on a device, or -1 if none does.
  int (*choose)(const char* const* targets, int count, int device, const KernelTraits& kernel);
  // Returns what a device is, as the target that would fit it best, e.g. cuda:sm_75.
  std::string (*describe)(int device);
  // Makes a kernel ready for a device: once, from any thread. Throws Error.
  void (*load)(Kernel& kernel, int device);
  // Launches a kernel; loads it if it is not. `stream` is the backend's: a CUstream, a ParallelFor*. Throws Error.
  void (*launch)(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params);
  // Writes the stream that ops launch on, and returns 0 if there is one. Null: torch's current stream of the device.
  int32_t (*current_stream)(int32_t device, void** stream) = nullptr;
  // Returns what people call a device and its driver. Null: what `describe` says.
  std::string (*name)(int device) = nullptr;
  // Whether `stream` is a ParallelFor* (kernels/cpu.h): torch's threads share the programs.
  bool takes_threads = false;
  // Returns whether the machine seems to have a device, without opening a driver: images are then unpacked ahead of their first
  // use. Null: none is.
  bool (*is_likely)() = nullptr;
};

// Returns that none of the targets that a library holds runs on a device, with the command that builds one that does.
inline std::string no_target_fits(const Launcher& launcher, const char* const* targets, int count, int device,
                                  const char* build) {
  const std::string wanted = launcher.describe(device);
  std::string held;
  for (int i = 0; i < count; ++i) held += std::string(i != 0 ? ", " : "") + targets[i];
  return "this library holds no code for " + (launcher.name != nullptr ? launcher.name(device) : wanted) + "; it holds " +
         held + "\n  to fix: " + build + " --target " + wanted;
}

}  // namespace kernelpack
