// Reads tensors from Python without calling Python: through the C functions that their type offers (DLPack's exchange API).
#pragma once

#include <Python.h>

#include <cstdint>

namespace kernelpack {

// A tensor, as DLPack says it.
struct TensorView {
  void* data = nullptr;
  int32_t device_type = 0;  // DLDeviceType
  int32_t device = 0;
  uint32_t dtype = 0;  // code, bits and lanes
};

constexpr int32_t kOnCpu = 1;  // kDLCPU

// Returns what torch calls a type of devices; empty for one that this code does not know.
const char* torch_name(int32_t device_type);

class TensorExchange;

// Returns how to read tensors of a type; nullptr where it offers nothing that this code knows. Only torch's own tensors count:
// subclasses may mean another address by data_ptr().
const TensorExchange* tensor_exchange(PyTypeObject* type);

// Returns false, and clears the Python error, where the tensor cannot be described.
bool read(const TensorExchange& exchange, PyObject* tensor, TensorView& view);

// Writes the current stream of a device. Returns false, and clears the Python error, where there is none.
bool current_stream(const TensorExchange& exchange, int32_t device_type, int32_t device, void** stream);

}  // namespace kernelpack
