// The architectures whose PTX is packed: written by `make docs` from backends/cuda/machine/features.py.
#pragma once

namespace kernelpack::cuda {

// A compute capability, 90 for 9.0, and the version of CUDA whose driver compiles the PTX for it, 12040 for CUDA 12.4.
struct Features {
  int architecture;
  int ptx_driver;
};

constexpr Features kFeatures[] = {{80, 12000}, {86, 12000}, {87, 12000}, {89, 12040}, {90, 12010}};

}  // namespace kernelpack::cuda
