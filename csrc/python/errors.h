// What errors of C++ are in Python.
#pragma once

#include <pybind11/pybind11.h>

#include "kernels/kernel.h"

namespace kernelpack {

// Sets the Python error that an error of the launchers becomes.
inline void set_python_error(const Error& error) {
  const pybind11::module_ errors = pybind11::module_::import("kernelpack.errors");
  if (const auto* outside = dynamic_cast<const AccessOutside*>(&error)) {
    const pybind11::object raised = errors.attr("MemoryAccessError")(error.what());
    raised.attr("address") = outside->address;
    raised.attr("parameter") = outside->parameter;
    PyErr_SetObject(errors.attr("MemoryAccessError").ptr(), raised.ptr());
    return;
  }
  const bool assertion = dynamic_cast<const RunTimeAssertionFailure*>(&error) != nullptr;
  pybind11::set_error(errors.attr(assertion ? "RunTimeAssertionFailure" : "LaunchError"), error.what());
}

}  // namespace kernelpack
