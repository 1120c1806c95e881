// What Python calls without making a tuple of the arguments: types of such objects, and errors of C++ in their calls.
#pragma once

#include <pybind11/pybind11.h>
#include <structmember.h>

#include <cstddef>
#include <exception>

#include "python/errors.h"

namespace kernelpack {

// Returns what `call` does, or null with Python's error set where it throws.
template <typename Call>
PyObject* python_call(Call&& call) {
  try {
    return call();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const Error& error) {
    set_python_error(error);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Returns the type of objects of C++ whose function for vectorcalls lies at `offset`. Only C++ makes them.
inline PyTypeObject* vectorcall_type(const char* name, std::size_t size, std::size_t offset, destructor release) {
  PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, static_cast<Py_ssize_t>(offset), READONLY, nullptr},
                           {nullptr, 0, 0, 0, nullptr}};
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(release)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_members, members},
                         {0, nullptr}};
  PyType_Spec spec = {name, static_cast<int>(size), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace kernelpack
