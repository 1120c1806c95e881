// Reads tensors through the part of DLPack's exchange API that is needed; the structures are those of dlpack.h, version 1.
#include "python/tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kernelpack {
namespace {

struct Tensor {  // DLTensor
  void* data;
  int32_t device_type;
  int32_t device;
  int32_t rank;
  uint32_t dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

constexpr uint32_t kMajorVersion = 1;

// Returns a type's capsule, or nullptr without an error.
PyObject* capsule_of(PyTypeObject* type) {
  PyObject* found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (found == nullptr) PyErr_Clear();
  return found;
}

bool is_named(PyTypeObject* type, const char* module, const char* name) {
  PyObject* found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__");
  const char* text = found != nullptr && PyUnicode_Check(found) ? PyUnicode_AsUTF8(found) : nullptr;
  const bool same = text != nullptr && std::strcmp(text, module) == 0 && std::strcmp(type->tp_name, name) == 0;
  Py_XDECREF(found);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return same;
}

}  // namespace

const char* torch_name(int32_t device_type) {
  static const std::pair<int32_t, const char*> kNames[] = {// DLDeviceType; torch for AMD's GPUs calls them cuda
                                                           {kOnCpu, "cpu"},
                                                           {2, "cuda"},
                                                           {8, "mps"},
                                                           {10, "cuda"},
                                                           {14, "xpu"}};
  for (const auto& [type, name] : kNames) {
    if (type == device_type) return name;
  }
  return "";
}

class TensorExchange {  // DLPackExchangeAPI
 public:
  uint32_t major;
  uint32_t minor;
  const TensorExchange* previous;
  void* allocator;
  void* from_python;
  void* to_python;
  int (*view)(void* tensor, Tensor* out);
  int (*current_work_stream)(int32_t device_type, int32_t device, void** stream);
};

const TensorExchange* tensor_exchange(PyTypeObject* type) {
  struct Row {
    PyTypeObject* type;  // kept alive
    const TensorExchange* exchange;
  };
  static Row known[16];  // under the GIL
  static int count = 0;
  for (int i = 0; i < count; ++i) {
    if (known[i].type == type) return known[i].exchange;
  }
  const TensorExchange* found = nullptr;
  if (is_named(type, "torch", "Tensor") || is_named(type, "torch.nn.parameter", "Parameter")) {
    if (PyObject* capsule = capsule_of(type)) {
      if (PyCapsule_CheckExact(capsule)) {
        found = static_cast<const TensorExchange*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
      }
      Py_DECREF(capsule);
    }
    while (found != nullptr && found->major != kMajorVersion) found = found->previous;
    if (found != nullptr && found->view == nullptr) found = nullptr;
  }
  if (count < 16) {
    Py_INCREF(type);
    known[count++] = {type, found};
  }
  return found;
}

bool read(const TensorExchange& exchange, PyObject* tensor, TensorView& view) {
  Tensor described;
  if (exchange.view(tensor, &described) != 0) {
    PyErr_Clear();
    return false;
  }
  if (described.data == nullptr) {
    int64_t* const end = described.shape + described.rank;
    if (std::find(described.shape, end, 0) == end) return false;  // elements without memory: Python refuses them
  }
  view.data = static_cast<char*>(described.data) + described.byte_offset;
  view.device_type = described.device_type;
  view.device = described.device;
  view.dtype = described.dtype;
  return true;
}

bool current_stream(const TensorExchange& exchange, int32_t device_type, int32_t device, void** stream) {
  if (exchange.current_work_stream(device_type, device, stream) == 0) return true;
  PyErr_Clear();
  return false;
}

}  // namespace kernelpack
