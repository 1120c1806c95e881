// Launches from Python: finds the compiled kernel by a key made of the arguments, and asks Python for it where the key is new.
// Python (runtime/specialization.py) alone decides what a call is compiled for; calls with equal keys share a compilation.
// Calls with arguments that are not known here (tuples, descriptors, other objects with addresses) or with hooks go to Python
// each time.
#include "python/jit_launcher.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/call_key.h"
#include "python/loaded_kernel.h"
#include "python/tensors.h"
#include "python/vectorcall.h"

namespace py = pybind11;

namespace kernelpack {
namespace {

// A kernel that was launched, and the calls that it is for.
struct Entry {
  KeptKey key;
  py::object loaded;               // what calls return
  LoadedKernel* kernel;            // of `loaded`; nullptr: such calls are Python's
  std::vector<uint16_t> run_time;  // which arguments are its parameters
};

// A name that a kernel reads from outside, and what it stood for when the kernel was compiled.
struct Binding {
  py::object dictionary;  // where it is looked up, or
  py::object look_up;     // the function that does
  py::object name;
  py::object value;
};

// The launches of one kernel.
class JitLauncher {
 public:
  JitLauncher(py::object python, const py::sequence& names, const py::sequence& defaults, py::object no_default,
              const std::vector<bool>& constexprs, const py::object& options, const py::sequence& tests, py::list hooks)
      : python_(std::move(python)), no_default_(std::move(no_default)), option_names_(options), hooks_(std::move(hooks)) {
    for (const py::handle& name : names) names_.push_back(interned(name));
    for (const py::handle& value : defaults) defaults_.push_back(py::reinterpret_borrow<py::object>(value));
    is_constexpr_.assign(constexprs.begin(), constexprs.end());
    for (const py::handle& row : tests) {
      const auto [kind, value, holds] = row.cast<std::tuple<std::string, int64_t, py::object>>();
      tests_.add(kind, value, holds);
    }
    is_python_ = names_.size() > static_cast<size_t>(kMaxParameters) || tests_.size() > kMaxTests;
  }

  // Forgets all kernels: what they were compiled from has changed.
  void clear() {
    ++generation_;
    std::unordered_multimap<uint64_t, Entry> forgotten;
    forgotten.swap(entries_);  // freeing a kernel may run Python, and other threads, which must not find it half gone
  }

  // Remembers what the functions of a kernel read from outside: (look_up, name, value) of each.
  void watch(const py::sequence& bindings) {
    std::vector<Binding> watched;
    for (const py::handle& row : bindings) {
      const auto parts = row.cast<py::tuple>();
      Binding binding{py::object(), parts[0], parts[1], parts[2]};
      if (PyCFunction_CheckExact(binding.look_up.ptr())) {  // the method `get` of a dictionary
        PyObject* self = PyCFunction_GET_SELF(binding.look_up.ptr());
        if (self != nullptr && PyDict_CheckExact(self)) binding.dictionary = py::reinterpret_borrow<py::object>(self);
      }
      watched.push_back(std::move(binding));
    }
    bindings_.swap(watched);  // before what was watched is freed
  }

  // Launches as `kernel[grid](*args, **kwargs)`; `names` are those of the last arguments. Returns a new reference.
  PyObject* launch(PyObject* grid, PyObject* const* args, size_t positional, PyObject* names) {
    Call call;
    Entry* entry = is_python_ || PyList_GET_SIZE(hooks_.ptr()) != 0 ? nullptr : find(call, args, positional, names);
    if (entry == nullptr || entry->kernel == nullptr || call.is_mixed) return in_python(grid, args, positional, names);
    // what follows may run other Python code, which may clear the entries
    py::object result = entry->loaded;
    LoadedKernel& kernel = *entry->kernel;
    Argument arguments[kMaxParameters];
    const size_t count = entry->run_time.size();
    for (size_t i = 0; i < count; ++i) arguments[i] = call.arguments[entry->run_time[i]];
    Grid extents;
    if (!read_grid(grid, call, extents)) return in_python(grid, args, positional, names);
    if (extents.x != 0 && extents.y != 0 && extents.z != 0) {
      void* stream = nullptr;
      if (call.device_type != kOnCpu && !current_stream(*call.exchange, call.device_type, call.device, &stream)) {
        return in_python(grid, args, positional, names);
      }
      kernel.launch(call.device_type == kOnCpu ? 0 : call.device, stream, extents, arguments);
    }
    return result.release().ptr();
  }

  // Returns the nanoseconds that binding a call's arguments and making its key take.
  double time_key(int64_t calls, const py::args& args, const py::kwargs& kwargs) {
    std::vector<PyObject*> all;
    for (const py::handle& value : args) all.push_back(value.ptr());
    py::list names;
    for (const auto& [name, value] : kwargs) {
      names.append(name);
      all.push_back(value.ptr());
    }
    const py::tuple named(names);
    uint64_t hash = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) {
      Call call;
      if (!bind(call, all.data(), args.size(), named.ptr()) || !make_key(call)) throw Error("such calls have no key in C++");
      hash ^= call.key.hash();
    }
    const auto spent = std::chrono::steady_clock::now() - start;
    return hash == 1 ? 0 : std::chrono::duration<double, std::nano>(spent).count() / static_cast<double>(calls);
  }

 private:
  // One call: its arguments by parameter, and what they are.
  struct Call {
    PyObject* values[kMaxParameters];  // borrowed
    Argument arguments[kMaxParameters];
    struct {
      PyObject* name;
      PyObject* value;
    } options[kMaxOptions];  // borrowed
    size_t option_count = 0;
    Key key;
    PyTypeObject* tensor_type = nullptr;  // of the last one, and how it is read
    const TensorExchange* exchange = nullptr;
    bool has_tensor = false;
    int32_t device_type = kOnCpu;
    int32_t device = 0;
    bool is_mixed = false;  // tensors lie on several devices
  };

  static py::object interned(const py::handle& name) {
    PyObject* text = name.inc_ref().ptr();
    PyUnicode_InternInPlace(&text);
    return py::reinterpret_steal<py::object>(text);
  }

  // Returns the kernel of a call, compiled by now; nullptr where Python has to look at it.
  Entry* find(Call& call, PyObject* const* args, size_t positional, PyObject* names) {
    if (!bind(call, args, positional, names) || !make_key(call)) return nullptr;
    if (!bindings_hold()) {
      python_.attr("forget")();
    }
    const uint64_t hash = call.key.hash();
    const auto [first, last] = entries_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      const Match matched = it->second.key.match(call.key);
      if (matched == Match::yes) return &it->second;
      if (matched == Match::unknown) return nullptr;
    }
    return compile(call, hash);
  }

  bool bind(Call& call, PyObject* const* args, size_t positional, PyObject* names) {
    const size_t count = names_.size();
    if (positional > count) return false;
    std::copy_n(args, positional, call.values);
    std::fill(call.values + positional, call.values + count, nullptr);
    const size_t named = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
    for (size_t i = 0; i < named; ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      const size_t place = place_of(name, positional);
      if (place < count) {
        if (call.values[place] != nullptr) return false;
        call.values[place] = args[positional + i];
      } else if (call.option_count < kMaxOptions && PySet_Contains(option_names_.ptr(), name) == 1) {
        call.options[call.option_count++] = {name, args[positional + i]};
      } else {
        PyErr_Clear();
        return false;  // Python says what is wrong
      }
    }
    for (size_t i = positional; i < count; ++i) {
      if (call.values[i] != nullptr) continue;
      call.values[i] = defaults_[i].ptr();
      if (call.values[i] == no_default_.ptr()) return false;
    }
    return true;
  }

  // Returns the parameter of a name from `first` on, or the number of parameters.
  size_t place_of(PyObject* name, size_t first) const {
    const size_t count = names_.size();
    for (size_t i = first; i < count; ++i) {  // names in calls are interned, nearly always
      if (names_[i].ptr() == name) return i;
    }
    for (size_t i = 0; i < count; ++i) {
      if (PyUnicode_Compare(names_[i].ptr(), name) == 0) return i;
    }
    return count;
  }

  bool make_key(Call& call) {
    Key& key = call.key;
    const size_t count = names_.size();
    const char* const is_constexpr = is_constexpr_.data();
    for (size_t i = 0; i < count; ++i) {
      PyObject* value = call.values[i];
      const uint64_t word = is_constexpr[i] ? key.constant(value) : run_time_word(call, value, call.arguments[i]);
      if (word == kUnknown) return false;
      key.words[i] = word;
    }
    key.word_count = count;
    key.add(static_cast<uint64_t>(call.device_type));
    for (size_t i = 0; i < call.option_count; ++i) {
      for (PyObject* value : {call.options[i].name, call.options[i].value}) {
        const uint64_t word = key.constant(value);
        if (word == kUnknown) return false;
        key.add(word);
      }
    }
    return true;
  }

  // Reads an argument. Returns its word of the key, kUnknown for what Python has to look at.
  uint64_t run_time_word(Call& call, PyObject* value, Argument& argument) const {
    PyTypeObject* type = Py_TYPE(value);
    if (type == &PyLong_Type) {
      if (!read_integer(value, argument.integer)) return kUnknown;
      argument.form = Argument::Form::integer;
      const bool is_narrow = argument.integer == static_cast<int32_t>(argument.integer);
      return (is_narrow ? kInt32 : kInt64) | tests_.holding(argument.integer) << kTagBits;
    }
    if (type == &PyFloat_Type) {
      argument.form = Argument::Form::number;
      argument.number = PyFloat_AS_DOUBLE(value);
      return kFloat;
    }
    if (type == &PyBool_Type) {
      argument.form = Argument::Form::integer;
      argument.integer = value == Py_True ? 1 : 0;
      return kBool;
    }
    return value == Py_None ? uint64_t{kNone} : tensor_word(call, type, value, argument);
  }

  uint64_t tensor_word(Call& call, PyTypeObject* type, PyObject* value, Argument& argument) const {
    if (type != call.tensor_type) {
      call.tensor_type = type;
      call.exchange = tensor_exchange(type);
    }
    TensorView view;
    if (call.exchange == nullptr || !read(*call.exchange, value, view)) return kUnknown;
    if (!std::exchange(call.has_tensor, true)) {
      call.device_type = view.device_type;
      call.device = view.device;
    } else if (view.device_type != call.device_type || view.device != call.device) {
      call.is_mixed = true;
    }
    argument.form = Argument::Form::pointer;
    argument.pointer = view.data;
    return kTensor | tests_.holding(reinterpret_cast<int64_t>(view.data)) << kTagBits | static_cast<uint64_t>(view.dtype) << 32;
  }

  bool bindings_hold() const {
    for (size_t i = 0; i < bindings_.size(); ++i) {
      const Binding& binding = bindings_[i];
      if (binding.dictionary.ptr() != nullptr) {
        PyObject* found = PyDict_GetItemWithError(binding.dictionary.ptr(), binding.name.ptr());
        if (found == nullptr) PyErr_Clear();
        if ((found == nullptr ? Py_None : found) != binding.value.ptr()) return false;
      } else {
        const Binding held = binding;  // looking it up may run other threads, which may watch anew
        if (!held.look_up(held.name).is(held.value)) return false;
      }
    }
    return true;
  }

  // Has Python compile for a call of a new kind. Throws what it raises. Returns nullptr where kernels were forgotten meanwhile.
  Entry* compile(const Call& call, uint64_t hash) {
    py::list values;
    for (size_t i = 0; i < names_.size(); ++i) values.append(py::handle(call.values[i]));
    py::dict options;
    for (size_t i = 0; i < call.option_count; ++i)
      options[py::handle(call.options[i].name)] = py::handle(call.options[i].value);
    const uint64_t generation = generation_;
    const auto [loaded, native, run_time] =
        python_.attr("prepare")(values, options).cast<std::tuple<py::object, py::object, std::vector<uint16_t>>>();
    Entry entry{KeptKey(call.key), loaded, native.is_none() ? nullptr : native.cast<LoadedKernel*>(), run_time};
    if (entry.kernel != nullptr && entry.kernel->parameter_count() != run_time.size()) entry.kernel = nullptr;
    for (uint16_t number : run_time) {
      if (number >= names_.size()) entry.kernel = nullptr;
    }
    if (entry.kernel != nullptr && entry.kernel->device_type() != torch_name(call.device_type)) entry.kernel = nullptr;
    if (generation != generation_) return nullptr;
    return &entries_.emplace(hash, std::move(entry))->second;
  }

  // Reads a grid, of a function too: its first three extents, as Triton does. Returns false for one that Python has to refuse.
  bool read_grid(PyObject* grid, const Call& call, Grid& extents) const {
    py::object chosen = py::reinterpret_borrow<py::object>(grid);
    if (!PyTuple_CheckExact(grid) && !PyList_CheckExact(grid) && !PyLong_CheckExact(grid)) {
      if (PyCallable_Check(grid) == 0) return false;
      py::dict meta;
      for (size_t i = 0; i < names_.size(); ++i) PyDict_SetItem(meta.ptr(), names_[i].ptr(), call.values[i]);
      for (size_t i = 0; i < call.option_count; ++i) PyDict_SetItem(meta.ptr(), call.options[i].name, call.options[i].value);
      chosen = py::reinterpret_steal<py::object>(PyObject_CallOneArg(grid, meta.ptr()));
      if (!chosen) throw py::error_already_set();
    }
    if (PyLong_CheckExact(chosen.ptr())) return read_extent(chosen.ptr(), kMaxX, extents.x);
    if (!PyTuple_CheckExact(chosen.ptr()) && !PyList_CheckExact(chosen.ptr())) return false;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(chosen.ptr());
    PyObject** items = PySequence_Fast_ITEMS(chosen.ptr());
    if (count < 1) return false;
    return read_extent(items[0], kMaxX, extents.x) && (count < 2 || read_extent(items[1], kMaxYZ, extents.y)) &&
           (count < 3 || read_extent(items[2], kMaxYZ, extents.z));
  }

  static bool read_extent(PyObject* value, int64_t most, int64_t& extent) {
    return PyLong_CheckExact(value) && read_integer(value, extent) && extent >= 0 && extent <= most;
  }

  PyObject* in_python(PyObject* grid, PyObject* const* args, size_t positional, PyObject* names) const {
    py::tuple given(positional);
    for (size_t i = 0; i < positional; ++i) given[i] = py::reinterpret_borrow<py::object>(args[i]);
    py::dict named;
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
      named[py::handle(PyTuple_GET_ITEM(names, i))] = py::handle(args[positional + static_cast<size_t>(i)]);
    }
    return python_.attr("launch")(py::handle(grid), given, named).release().ptr();
  }

  static constexpr int64_t kMaxX = INT32_MAX;
  static constexpr int64_t kMaxYZ = 65535;

  py::object python_;
  py::object no_default_;
  py::object option_names_;
  py::list hooks_;
  std::vector<py::object> names_, defaults_;
  std::vector<char> is_constexpr_;
  Tests tests_;
  std::vector<Binding> bindings_;
  std::unordered_multimap<uint64_t, Entry> entries_;
  uint64_t generation_ = 0;  // how often they were forgotten
  bool is_python_ = false;
};

// `kernel[grid]`: calls launch. A type of its own, since calls of pybind11's functions pack arguments into tuples.
struct Bound {
  PyObject_HEAD vectorcallfunc call;
  PyObject* owner;  // a capsule, which keeps the launcher alive
  JitLauncher* launcher;
  PyObject* grid;
};

constexpr const char* kCapsule = "kernelpack.JitLauncher";

PyObject* call_bound(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  auto& bound = *reinterpret_cast<Bound*>(self);
  return python_call(
      [&] { return bound.launcher->launch(bound.grid, args, static_cast<size_t>(PyVectorcall_NARGS(count)), names); });
}

void delete_bound(PyObject* self) {
  auto& bound = *reinterpret_cast<Bound*>(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_DECREF(bound.owner);
  Py_DECREF(bound.grid);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* bind_grid(PyObject* capsule, PyObject* grid) {
  static PyTypeObject* const type = vectorcall_type("kernelpack._C.Bound", sizeof(Bound), offsetof(Bound, call), delete_bound);
  Bound* bound = PyObject_New(Bound, type);
  if (bound == nullptr) return nullptr;
  bound->call = call_bound;
  bound->owner = Py_NewRef(capsule);
  bound->launcher = static_cast<JitLauncher*>(PyCapsule_GetPointer(capsule, kCapsule));
  bound->grid = Py_NewRef(grid);
  return reinterpret_cast<PyObject*>(bound);
}

// Returns the function of a launcher from a grid to what launches over it.
py::object binder(const py::object& self) {
  static PyMethodDef method = {"bind", bind_grid, METH_O, "Returns what launches over a grid, as kernel[grid] does."};
  const auto release = [](PyObject* capsule) { Py_XDECREF(static_cast<PyObject*>(PyCapsule_GetContext(capsule))); };
  auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(self.cast<JitLauncher*>(), kCapsule, release));
  PyCapsule_SetContext(capsule.ptr(), Py_NewRef(self.ptr()));
  return py::reinterpret_steal<py::object>(PyCFunction_New(&method, capsule.ptr()));
}

}  // namespace

void add_jit_launcher(py::module_& module) {
  py::class_<JitLauncher>(module, "JitLauncher")
      .def(py::init<py::object, const py::sequence&, const py::sequence&, py::object, const std::vector<bool>&,
                    const py::object&, const py::sequence&, py::list>(),
           py::arg("python"), py::arg("names"), py::arg("defaults"), py::arg("no_default"), py::arg("constexprs"),
           py::arg("options"), py::arg("tests"), py::arg("hooks"))
      .def("clear", &JitLauncher::clear)
      .def("watch", &JitLauncher::watch, py::arg("bindings"))
      .def("time_key", &JitLauncher::time_key, py::arg("calls"))
      .def("binder", &binder);
}

}  // namespace kernelpack
