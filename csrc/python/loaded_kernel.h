// A compiled kernel that this process can launch from Python.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/kernel.h"

namespace kernelpack {

// The value of a run-time argument.
struct Argument {
  enum class Form : uint8_t { integer, number, pointer };
  Form form;
  union {
    int64_t integer;
    double number;
    void* pointer;
  };
};

class LoadedKernel {
 public:
  // `image` is the address of code that is loaded, or the bytes of an image; `device_type` what torch calls the devices.
  // Throws Error for a parameter type that Python cannot pass, and where the backend has no launcher.
  LoadedKernel(const std::string& backend, std::string device_type, std::string name, std::string entry, std::string target,
               const std::variant<uintptr_t, std::string>& image, const std::vector<std::string>& types, int num_warps,
               int num_ctas, int64_t shared_memory, double program_ns, std::string descriptors, bool launch_pdl,
               bool launch_cooperative_grid);

  const std::string& device_type() const { return device_type_; }
  const std::string& name() const { return name_; }
  size_t parameter_count() const { return kinds_.size(); }
  // Makes the kernel ready for a device, before its first launch. Throws Error.
  void load(int device) { launcher_.load(*kernel_, device); }
  // Launches on a device; `stream` is the device's, and unused by launchers that torch's threads serve, or
  // that have streams of their own. `arguments` has one for each parameter. Gives up the GIL meanwhile. Throws Error.
  void launch(int device, void* stream, const Grid& grid, const Argument* arguments);

 private:
  // How a run-time parameter lies in memory.
  enum class Kind : uint8_t { pointer, i1, i8, i16, i32, i64, f16, bf16, f32, f64 };
  static Kind kind_of(const std::string& type);
  void write(size_t parameter, const Argument& argument, void* slot) const;

  const Launcher& launcher_;
  std::string device_type_, name_, entry_, target_, descriptors_, bytes_;
  std::unique_ptr<Image> image_;
  std::vector<Kind> kinds_;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace kernelpack
