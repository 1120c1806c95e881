// Torch's C functions, found in the process when the library is loaded: one file serves programs with torch and without.
#pragma once

namespace kernelpack {

// Whether torch is in the process, so that its functions may be called. Known before any constructor of the library runs.
bool torch_is_here();

}  // namespace kernelpack
