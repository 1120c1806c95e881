// kernelpack._C: launches compiled kernels from Python, through the launchers that op libraries use. Only the JIT imports it.
#include <dlfcn.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/cuda.h"

namespace py = pybind11;

namespace kernelpack {
namespace {

// torch's threads, found in the libtorch_cpu that Python has loaded; this module does not link to torch.
class TorchThreads {
 public:
  TorchThreads() {
    void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    if (torch == nullptr) return;
    parallel_for_ = reinterpret_cast<ParallelForFunction>(dlsym(torch, "torch_parallel_for"));
    get_num_threads_ = reinterpret_cast<NumThreadsFunction>(dlsym(torch, "torch_get_num_threads"));
  }
  // Returns nullptr, which means the calling thread alone, where there is no torch.
  ParallelFor* get() { return parallel_for_ != nullptr && get_num_threads_ != nullptr ? &threads_ : nullptr; }

 private:
  using Body = void (*)(int64_t begin, int64_t end, void* argument);
  using ParallelForFunction = int32_t (*)(int64_t begin, int64_t end, int64_t grain, Body body, void* argument);
  using NumThreadsFunction = int32_t (*)(uint32_t* count);

  static int num_threads(void* self) {
    uint32_t count = 1;
    return static_cast<TorchThreads*>(self)->get_num_threads_(&count) == 0 ? static_cast<int>(count) : 1;
  }
  static void run(void* self, int64_t count, Body body, void* argument) {
    if (static_cast<TorchThreads*>(self)->parallel_for_(0, count, 1, body, argument) != 0)
      throw Error("torch's threads failed");
  }

  ParallelForFunction parallel_for_ = nullptr;
  NumThreadsFunction get_num_threads_ = nullptr;
  ParallelFor threads_{num_threads, run, this};
};

ParallelFor* torch_threads() {
  static TorchThreads threads;
  return threads.get();
}

// How a run-time parameter stands in memory.
enum class Kind { pointer, i1, i8, i16, i32, i64, f32, f64 };

Kind kind_of(const std::string& type) {
  static const std::pair<const char*, Kind> kNames[] = {{"i1", Kind::i1},   {"i8", Kind::i8},   {"i16", Kind::i16},
                                                        {"i32", Kind::i32}, {"i64", Kind::i64}, {"f32", Kind::f32},
                                                        {"f64", Kind::f64}};
  if (type.rfind("!tt.ptr", 0) == 0) return Kind::pointer;
  for (const auto& [name, kind] : kNames) {
    if (type == name) return kind;
  }
  throw Error("a kernel parameter of type " + type + " cannot be passed from Python");
}

// Writes a Python value into the 8 bytes of a slot. Integers keep their low bits, so that unsigned ones fit too.
void write(Kind kind, const py::handle& value, unsigned char* slot) {
  if (kind == Kind::f32 || kind == Kind::f64) {
    const double number = py::float_(py::reinterpret_borrow<py::object>(value));
    const auto narrow = static_cast<float>(number);
    kind == Kind::f32 ? std::memcpy(slot, &narrow, sizeof(narrow)) : std::memcpy(slot, &number, sizeof(number));
    return;
  }
  const bool is_tensor = kind == Kind::pointer && py::hasattr(value, "data_ptr");
  const py::object number = is_tensor ? py::object(value.attr("data_ptr")()) : py::reinterpret_borrow<py::object>(value);
  const unsigned long long bits = PyLong_AsUnsignedLongLongMask(number.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  std::memcpy(slot, &bits, sizeof(bits));  // little endian: narrower types read the first bytes
}

// A compiled kernel that this process can launch. `image` is a CPU kernel's address, or the base64 of a GPU's image.
class LoadedKernel {
 public:
  LoadedKernel(const std::string& backend, std::string name, std::string entry, std::string target,
               const std::variant<uintptr_t, std::string>& image, size_t image_size, const std::vector<std::string>& types,
               int num_warps, int num_ctas, int64_t shared_memory, double program_ns, std::string tensor_maps, bool launch_pdl)
      : launcher_(backend == "cpu" ? cpu_launcher : cuda_launcher),
        is_cpu_(backend == "cpu"),
        name_(std::move(name)),
        entry_(std::move(entry)),
        target_(std::move(target)),
        tensor_maps_(std::move(tensor_maps)) {
    for (const std::string& type : types) kinds_.push_back(kind_of(type));
    const void* start = nullptr;
    if (const auto* address = std::get_if<uintptr_t>(&image)) {
      start = reinterpret_cast<const void*>(*address);
    } else {
      text_ = std::get<std::string>(image);
      chunk_ = text_.c_str();
      base64_ = {&chunk_, 1, image_size};
      start = &base64_;
    }
    kernel_.reset(new Kernel{name_.c_str(), entry_.c_str(), target_.c_str(), start, num_warps, num_ctas, shared_memory,
                             program_ns, tensor_maps_.c_str(), launch_pdl});
  }

  // Launches on a device; `stream` is a CUstream, and unused on the CPU, where torch's threads share the programs.
  void launch(int device, uintptr_t stream, const std::array<int64_t, 3>& grid, const py::sequence& values) {
    if (values.size() != kinds_.size()) {
      throw Error(name_ + " takes " + std::to_string(kinds_.size()) + " run-time arguments, not " +
                  std::to_string(values.size()));
    }
    std::vector<std::array<unsigned char, 8>> slots(kinds_.size());
    std::vector<void*> params(kinds_.size());
    for (size_t i = 0; i < kinds_.size(); ++i) {
      write(kinds_[i], py::object(values[i]), slots[i].data());
      params[i] = slots[i].data();
    }
    void* where = is_cpu_ ? static_cast<void*>(torch_threads()) : reinterpret_cast<void*>(stream);
    const py::gil_scoped_release release;
    launcher_.launch(*kernel_, device, where, {grid[0], grid[1], grid[2]}, params.data());
  }

 private:
  const Launcher& launcher_;
  bool is_cpu_;
  std::string name_, entry_, target_, tensor_maps_, text_;
  const char* chunk_ = nullptr;
  Base64Image base64_{};
  std::vector<Kind> kinds_;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace
}  // namespace kernelpack

PYBIND11_MODULE(_C, module) {
  module.doc() = "Launches compiled kernels from Python. Only the JIT imports it: op libraries need nothing of it.";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const kernelpack::Error& error) {
      py::set_error(py::module_::import("kernelpack.errors").attr("LaunchError"), error.what());
    }
  });
  py::class_<kernelpack::LoadedKernel>(module, "LoadedKernel")
      .def(py::init<const std::string&, std::string, std::string, std::string, const std::variant<uintptr_t, std::string>&,
                    size_t, const std::vector<std::string>&, int, int, int64_t, double, std::string, bool>(),
           py::kw_only(), py::arg("backend"), py::arg("name"), py::arg("entry"), py::arg("target"), py::arg("image"),
           py::arg("image_size"), py::arg("types"), py::arg("num_warps"), py::arg("num_ctas"), py::arg("shared_memory"),
           py::arg("program_ns"), py::arg("tensor_maps") = "", py::arg("launch_pdl") = false)
      .def("launch", &kernelpack::LoadedKernel::launch, py::arg("device"), py::arg("stream"), py::arg("grid"),
           py::arg("values"));
}
