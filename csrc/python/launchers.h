// Which launcher serves a backend in this process.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace kernelpack {

// Returns the launcher of a backend. Throws Error where this process has none.
const Launcher& launcher_of(const std::string& backend);

// Returns the names of the backends that have one.
std::vector<std::string> launchers();

// Adds the launcher that a library's function kernelpack_launcher returns; the library stays loaded. Throws Error.
void add_launcher(const std::string& library);

}  // namespace kernelpack
