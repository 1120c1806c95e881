// `kernel.run(x, y, z, stream, ...)` in one C++ call: launches one compiled kernel by the convention of Triton's launchers.
#pragma once

#include <pybind11/pybind11.h>

namespace kernelpack {

// Adds the function that makes runners to the module.
void add_runner(pybind11::module_& module);

}  // namespace kernelpack
