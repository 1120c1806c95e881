// kernelpack._C: launches compiled kernels from Python, through the launchers that op libraries use. Only the JIT imports it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <string>
#include <vector>

#include "python/errors.h"
#include "python/jit_launcher.h"
#include "python/launchers.h"
#include "python/loaded_kernel.h"
#include "python/runner.h"

namespace py = pybind11;

namespace kernelpack {
namespace {

// Returns what a Python value is for a kernel: a tensor's address, a number.
Argument argument_of(const py::handle& value) {
  Argument argument;
  if (PyFloat_Check(value.ptr())) {
    argument.form = Argument::Form::number;
    argument.number = PyFloat_AS_DOUBLE(value.ptr());
    return argument;
  }
  const bool is_tensor = py::hasattr(value, "data_ptr");
  const py::object number = is_tensor ? py::object(value.attr("data_ptr")()) : py::reinterpret_borrow<py::object>(value);
  argument.form = is_tensor ? Argument::Form::pointer : Argument::Form::integer;
  const unsigned long long bits = PyLong_AsUnsignedLongLongMask(number.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  argument.integer = static_cast<int64_t>(bits);
  return argument;
}

void launch(LoadedKernel& kernel, int device, uintptr_t stream, const std::array<int64_t, 3>& grid,
            const py::sequence& values) {
  if (values.size() != kernel.parameter_count()) {
    throw Error(kernel.name() + " takes " + std::to_string(kernel.parameter_count()) + " run-time arguments, not " +
                std::to_string(values.size()));
  }
  std::vector<Argument> arguments;
  for (const py::handle& value : values) arguments.push_back(argument_of(value));
  kernel.launch(device, reinterpret_cast<void*>(stream), {grid[0], grid[1], grid[2]}, arguments.data());
}

}  // namespace
}  // namespace kernelpack

PYBIND11_MODULE(_C, module) {
  module.doc() = "Launches compiled kernels from Python. Only the JIT imports it: op libraries need nothing of it.";
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const kernelpack::Error& error) {
      kernelpack::set_python_error(error);
    }
  });
  py::class_<kernelpack::LoadedKernel>(module, "LoadedKernel")
      .def(py::init<const std::string&, std::string, std::string, std::string, std::string,
                    const std::variant<uintptr_t, std::string>&, const std::vector<std::string>&, int, int, int64_t, double,
                    std::string, bool, bool>(),
           py::kw_only(), py::arg("backend"), py::arg("device_type"), py::arg("name"), py::arg("entry"), py::arg("target"),
           py::arg("image"), py::arg("types"), py::arg("num_warps"), py::arg("num_ctas"), py::arg("shared_memory"),
           py::arg("program_ns"), py::arg("descriptors") = "", py::arg("launch_pdl") = false,
           py::arg("launch_cooperative_grid") = false)
      .def("load", &kernelpack::LoadedKernel::load, py::arg("device"))
      .def("launch", &kernelpack::launch, py::arg("device"), py::arg("stream"), py::arg("grid"), py::arg("values"));
  module.def("launchers", &kernelpack::launchers);
  module.def("add_launcher", &kernelpack::add_launcher, py::arg("library"));
  kernelpack::add_jit_launcher(module);
  kernelpack::add_runner(module);
}
