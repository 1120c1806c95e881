// Apart from those who call them: what a compiler sees it would take from the linker's table instead.
#include "ops/shim.h"

namespace kernelpack {

const TorchFunctions torch_functions = {aoti_torch_get_sizes,     aoti_torch_get_strides,         aoti_torch_get_dim,
                                        aoti_torch_get_dtype,     aoti_torch_get_data_ptr,        aoti_torch_get_device_index,
                                        aoti_torch_empty_strided, aoti_torch_delete_tensor_object};

void shim_failed(const char* doing) {
  throw Error(std::string("torch failed while ") + doing);
}

}  // namespace kernelpack
