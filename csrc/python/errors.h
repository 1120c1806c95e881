// What errors of C++ are in Python.
#pragma once

#include <pybind11/pybind11.h>

#include "kernels/kernel.h"

namespace kernelpack {

// Sets the Python error that an error of the launchers becomes.
inline void set_python_error(const Error& error) {
  const bool assertion = dynamic_cast<const RunTimeAssertionFailure*>(&error) != nullptr;
  const pybind11::module_ errors = pybind11::module_::import("kernelpack.errors");
  pybind11::set_error(errors.attr(assertion ? "RunTimeAssertionFailure" : "LaunchError"), error.what());
}

}  // namespace kernelpack
