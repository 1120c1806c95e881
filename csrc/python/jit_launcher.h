// `kernel[grid](...)` in one C++ call: binds arguments, makes the key of a call, finds the compiled kernel, launches it.
#pragma once

#include <pybind11/pybind11.h>

namespace kernelpack {

// Adds the types of launches to the module.
void add_jit_launcher(pybind11::module_& module);

}  // namespace kernelpack
