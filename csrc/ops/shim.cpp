// Apart from those who call them: what a compiler sees it would call by a jump instead.
#include "ops/shim.h"

namespace kernelpack {
namespace {

const char* empty_strided(int64_t dim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device_type,
                          int32_t device_index, AtenTensorHandle* handle, void** data) {
  if (aoti_torch_empty_strided(dim, sizes, strides, dtype, device_type, device_index, handle) != 0) return "";
  if (torch_functions.get_data_ptr(*handle, data) == 0) return nullptr;
  torch_functions.delete_tensor(*handle);
  return "";
}

}  // namespace

TorchFunctions torch_functions = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, empty_strided, nullptr};

void shim_failed(const char* doing) {
  throw Error(std::string("torch failed while ") + doing);
}

}  // namespace kernelpack
