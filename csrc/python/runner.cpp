// Launches one compiled kernel by the convention of Triton's launchers: grid, stream, function, metadata, metadata of the
// launch, hooks before and after it, then all arguments of the kernel's function. What is not plain goes to Python.
#include "python/runner.h"

#include <pybind11/stl.h>

#include <vector>

#include "python/call_key.h"
#include "python/loaded_kernel.h"
#include "python/tensors.h"
#include "python/vectorcall.h"

namespace py = pybind11;

namespace kernelpack {
namespace {

// The arguments before those of the kernel's function.
enum Place : size_t { kX, kY, kZ, kStream, kFunction, kMetadata, kLaunchMetadata, kEnter, kExit, kFirst };

class Runner {
 public:
  Runner(py::object owner, std::vector<size_t> places, size_t count, py::list watchers, py::object enter, py::object exit,
         py::object python)
      : owner_(std::move(owner)),
        kernel_(*owner_.cast<LoadedKernel*>()),
        places_(std::move(places)),
        count_(count),
        watchers_(std::move(watchers)),
        enter_(std::move(enter)),
        exit_(std::move(exit)),
        python_(std::move(python)) {
    is_plain_ = places_.size() == kernel_.parameter_count() && places_.size() <= static_cast<size_t>(kMaxParameters);
    for (const size_t place : places_) is_plain_ = is_plain_ && place < count_;
  }

  PyObject* run(PyObject* const* args, size_t count, PyObject* names) const {
    Argument arguments[kMaxParameters];
    Grid grid;
    int64_t stream = 0;
    int device = 0;
    const bool is_plain = is_plain_ && names == nullptr && count == kFirst + count_ && PyList_GET_SIZE(watchers_.ptr()) == 0 &&
                          is_none_or(args[kEnter], enter_) && is_none_or(args[kExit], exit_) && read(args[kX], grid.x) &&
                          read(args[kY], grid.y) && read(args[kZ], grid.z) && read(args[kStream], stream) &&
                          read_arguments(args + kFirst, arguments, device);
    if (!is_plain) return PyObject_Vectorcall(python_.ptr(), args, count, names);
    if (grid.x > 0 && grid.y > 0 && grid.z > 0) {
      const py::object kept = owner_;
      kernel_.launch(device, reinterpret_cast<void*>(stream), grid, arguments);
    }
    return Py_NewRef(Py_None);
  }

 private:
  static bool is_none_or(PyObject* hook, const py::object& known) { return hook == Py_None || hook == known.ptr(); }

  static bool read(PyObject* value, int64_t& number) { return PyLong_CheckExact(value) && read_integer(value, number); }

  // Reads the run-time arguments, and where their tensors lie. Returns false for what Python has to look at.
  bool read_arguments(PyObject* const* values, Argument* arguments, int& device) const {
    const TensorExchange* exchange = nullptr;
    PyTypeObject* tensor_type = nullptr;
    bool has_tensor = false;
    for (size_t i = 0; i < places_.size(); ++i) {
      PyObject* value = values[places_[i]];
      Argument& argument = arguments[i];
      PyTypeObject* type = Py_TYPE(value);
      if (type == &PyLong_Type) {
        argument.form = Argument::Form::integer;
        if (!read_integer(value, argument.integer)) return false;
      } else if (type == &PyFloat_Type) {
        argument.form = Argument::Form::number;
        argument.number = PyFloat_AS_DOUBLE(value);
      } else if (type == &PyBool_Type) {
        argument.form = Argument::Form::integer;
        argument.integer = value == Py_True ? 1 : 0;
      } else {
        if (type != tensor_type) {
          tensor_type = type;
          exchange = tensor_exchange(type);
        }
        TensorView view;
        if (exchange == nullptr || !kernelpack::read(*exchange, value, view)) return false;
        if (kernel_.device_type() != torch_name(view.device_type)) return false;
        if (has_tensor && view.device != device) return false;
        has_tensor = true;
        device = view.device;
        argument.form = Argument::Form::pointer;
        argument.pointer = view.data;
      }
    }
    return has_tensor;  // without a tensor Python knows the device
  }

  py::object owner_;
  LoadedKernel& kernel_;
  std::vector<size_t> places_;
  size_t count_;
  py::list watchers_;
  py::object enter_, exit_, python_;
  bool is_plain_;
};

// What Python calls. A type of its own, since calls of pybind11's functions pack arguments into tuples.
struct Callable {
  PyObject_HEAD vectorcallfunc call;
  Runner* runner;
};

PyObject* call_runner(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  return python_call([&] {
    return reinterpret_cast<Callable*>(self)->runner->run(args, static_cast<size_t>(PyVectorcall_NARGS(count)), names);
  });
}

void delete_callable(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<Callable*>(self)->runner;
  PyObject_Free(self);
  Py_DECREF(type);
}

py::object make_runner(py::object kernel, std::vector<size_t> places, size_t count, py::list watchers, py::object enter,
                       py::object exit, py::object python) {
  static PyTypeObject* const type =
      vectorcall_type("kernelpack._C.Runner", sizeof(Callable), offsetof(Callable, call), delete_callable);
  auto runner = std::make_unique<Runner>(std::move(kernel), std::move(places), count, std::move(watchers), std::move(enter),
                                         std::move(exit), std::move(python));
  Callable* callable = PyObject_New(Callable, type);
  if (callable == nullptr) throw py::error_already_set();
  callable->call = call_runner;
  callable->runner = runner.release();
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(callable));
}

}  // namespace

void add_runner(py::module_& module) {
  module.def("runner", make_runner, py::arg("kernel"), py::arg("places"), py::arg("count"), py::arg("watchers"),
             py::arg("enter"), py::arg("exit"), py::arg("python"));
}

}  // namespace kernelpack
