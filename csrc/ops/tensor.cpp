// Reading torch tensors, and the shape arithmetic of host functions.
#include "ops/tensor.h"

#include <charconv>
#include <cstring>

#include "ops/shim.h"

namespace kernelpack {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  int32_t (*code)();
};

const DTypeRow kDTypeRows[] = {
    {DType::float16, "float16", aoti_torch_dtype_float16},
    {DType::bfloat16, "bfloat16", aoti_torch_dtype_bfloat16},
    {DType::float32, "float32", aoti_torch_dtype_float32},
    {DType::float64, "float64", aoti_torch_dtype_float64},
    {DType::float8_e4m3fn, "float8_e4m3fn", aoti_torch_dtype_float8_e4m3fn},
    {DType::float8_e5m2, "float8_e5m2", aoti_torch_dtype_float8_e5m2},
    {DType::int8, "int8", aoti_torch_dtype_int8},
    {DType::int16, "int16", aoti_torch_dtype_int16},
    {DType::int32, "int32", aoti_torch_dtype_int32},
    {DType::int64, "int64", aoti_torch_dtype_int64},
    {DType::uint8, "uint8", aoti_torch_dtype_uint8},
    {DType::uint16, "uint16", aoti_torch_dtype_uint16},
    {DType::uint32, "uint32", aoti_torch_dtype_uint32},
    {DType::uint64, "uint64", aoti_torch_dtype_uint64},
    {DType::boolean, "bool", aoti_torch_dtype_bool},
};

// dtypes that torch has and kernels do not read, by name.
struct OtherDType {
  const char* name;
  int32_t (*code)();
};
const OtherDType kOtherDTypes[] = {
    {"complex32", aoti_torch_dtype_complex32},
    {"complex64", aoti_torch_dtype_complex64},
    {"complex128", aoti_torch_dtype_complex128},
    {"float8_e4m3fnuz", aoti_torch_dtype_float8_e4m3fnuz},
    {"float8_e5m2fnuz", aoti_torch_dtype_float8_e5m2fnuz},
};

// The same without a function in the C shim: their numbers are those of torch/headeronly/core/ScalarType.h.
struct NumberedDType {
  const char* name;
  int32_t code;
};
const NumberedDType kNumberedDTypes[] = {{"float8_e8m0fnu", 44}, {"float4_e2m1fn_x2", 45}};

const DTypeRow* row_of(DType dtype) {
  for (const DTypeRow& row : kDTypeRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

// torch's functions write pointers to what nobody may change.
int64_t** layout(const int64_t*& pointer) {
  return const_cast<int64_t**>(&pointer);
}

}  // namespace

const char* name_of(DType dtype) {
  const DTypeRow* row = row_of(dtype);
  return row != nullptr ? row->name : dtype == DType::none ? "None" : "a dtype that kernels do not read";
}

TorchCodes::TorchCodes() : cpu(aoti_torch_device_type_cpu()), cuda(aoti_torch_device_type_cuda()) {
  for (DType& entry : from_torch) entry = DType::other;
  for (int8_t& code : to_torch) code = -1;
  for (const DTypeRow& row : kDTypeRows) {
    const int32_t code = row.code();
    if (code < 0 || code >= 128) continue;
    from_torch[code] = row.dtype;
    to_torch[static_cast<int>(row.dtype)] = static_cast<int8_t>(code);
  }
}

const TorchCodes torch_codes;  // filled when the library is loaded, after torch

void no_dtype_of_tensors(DType dtype) {
  throw Error(std::string("a tensor cannot have ") + name_of(dtype));
}

CallDevices CallDevices::of(int32_t type) {
  const bool is_cpu = type == aoti_torch_device_type_cpu(), is_cuda = type == aoti_torch_device_type_cuda();
  return {type, !is_cpu, !is_cpu && !is_cuda};
}

std::string name_of(const Device& device) {
  std::string name = "device type " + std::to_string(device.type);
  if (device.type == torch_codes.cpu) return "cpu";
  if (device.is_cuda()) name = "cuda";
  if (device.type == aoti_torch_device_type_meta()) name = "meta";
  return device.index < 0 ? name : name + ":" + std::to_string(device.index);
}

bool same(const Ints& a, const Ints& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size()) * sizeof(int64_t)) == 0;
}

Ints concat(const Ints& a, const Ints& b) {
  Ints result = a;
  for (int64_t value : b) result.push(value);
  return result;
}

Ints slice(const Ints& values, int64_t start, int64_t stop) {
  const int64_t count = values.size();
  const auto clamp = [count](int64_t i) { return std::min(std::max<int64_t>(i < 0 ? i + count : i, 0), count); };
  Ints result;
  for (int64_t i = clamp(start); i < clamp(stop); ++i) result.push(values.at(i));
  return result;
}

int64_t product(const Ints& values) {
  int64_t result = 1;
  for (int64_t value : values) result *= value;
  return result;
}

Tensor::Tensor(AtenTensorHandle handle, const char* name, const CallDevices& devices)
    : handle_(handle), name_(name), device_{devices.type, -1} {
  const TorchFunctions& torch = torch_functions;
  AOTITorchError failed = torch.get_sizes(handle, layout(sizes_)) | torch.get_strides(handle, layout(strides_)) |
                          torch.get_dim(handle, &dim_) | torch.get_dtype(handle, &torch_dtype_) |
                          torch.get_data_ptr(handle, &data_);
  if (devices.asks_index) {
    failed |= torch.get_device_index(handle, &device_.index);
    if (devices.asks_type || device_.index < 0) failed |= aoti_torch_get_device_type(handle, &device_.type);
  }
  if (failed != 0) cannot_be_read();
  dtype_ = dtype_from_torch(torch_dtype_);
  if (dim_ > kMaxDims || data_ == nullptr) check_readable();
}

void Tensor::check_readable() const {
  if (dim_ > kMaxDims) {
    throw Error(std::string(name_) + " has " + std::to_string(dim_) + " dimensions, at most " + std::to_string(kMaxDims) +
                " can be read\n  to fix: call .flatten() or .reshape(...) on the tensor before the op");
  }
  // of a meta tensor, which has no address, ops are told by its device
  if (numel() > 0 && device_.type != aoti_torch_device_type_meta()) {
    throw Error(std::string(name_) + " of shape " + text(shape()) + " has no memory: its storage was freed or never allocated" +
                "\n  to fix: fill its storage before the op, for example with .untyped_storage().resize_(...)");
  }
}

void Tensor::read_layout() const {
  if (handle_ == nullptr) return;
  if ((aoti_torch_get_sizes(handle_, layout(sizes_)) | aoti_torch_get_strides(handle_, layout(strides_))) != 0)
    cannot_be_read();
}

void Tensor::cannot_be_read() const {
  bool defined = true;  // Python's None becomes a tensor that is not
  if (aoti_torch_is_defined(handle_, &defined) == 0 && !defined) {
    throw Error(std::string(name_) + " is None\n  to fix: pass a tensor");
  }
  // only strided tensors have strides: sparse ones and others fail here
  if (aoti_torch_get_strides(handle_, layout(strides_)) != 0) {
    throw Error(std::string(name_) + " is not a strided tensor\n  to fix: pass " + name_ + ".to_dense()");
  }
  shim_failed("reading a tensor");
}

bool Tensor::is_contiguous() const {
  if (sizes_ == nullptr) read_layout();
  int64_t step = 1;
  for (int64_t i = dim_ - 1; i >= 0; --i) {
    if (sizes_[i] != 1 && strides_[i] != step) return numel() == 0;
    step *= sizes_[i];
  }
  return true;
}

std::string Tensor::dtype_name() const {
  if (dtype_ != DType::other) return name_of(dtype_);
  for (const OtherDType& row : kOtherDTypes) {
    if (row.code() == torch_dtype_) return row.name;
  }
  for (const NumberedDType& row : kNumberedDTypes) {
    if (row.code == torch_dtype_) return row.name;
  }
  return "number " + std::to_string(torch_dtype_);
}

void Tensor::out_of_range(int64_t index) const {
  throw Error("dimension " + std::to_string(index) + " is out of range: " + name_ + " has " + std::to_string(dim_) +
              " dimensions, shape " + text(shape()));
}

Ints broadcast_strides(const Tensor& x, const Ints& shape) {
  Ints result;
  const int64_t missing = shape.size() - (x.defined() ? x.dim() : 0);
  for (int64_t i = 0; i < shape.size(); ++i) {
    const int64_t own = i - missing;
    if (!x.defined() || own < 0 || x.size(own) == 1) {
      result.push(0);
    } else if (x.size(own) == shape.at(i)) {
      result.push(x.stride(own));
    } else {
      break;
    }
  }
  if (missing < 0 || result.size() != shape.size()) {
    throw Error(std::string(x.name()) + " of shape " + text(x.shape()) + " does not broadcast to " + text(shape));
  }
  return result;
}

Ints strides_like(const Tensor& x, const Ints& shape) {
  const int64_t count = shape.size();
  if (x.dim() != count) {
    throw Error(std::string(x.name()) + " of shape " + text(x.shape()) + " has not as many dimensions as " + text(shape));
  }
  int64_t order[kMaxDims], steps[kMaxDims];  // of dimensions, innermost first, and what x's strides there are
  for (int64_t i = count - 1; i >= 0; --i) {
    int64_t place = count - 1 - i;
    const int64_t step = place == 0 ? 0 : x.stride(i) != 0 ? x.stride(i) : steps[place - 1];
    for (; place > 0 && steps[place - 1] > step; --place) {
      order[place] = order[place - 1];
      steps[place] = steps[place - 1];
    }
    order[place] = i;
    steps[place] = step;
  }
  int64_t strides[kMaxDims];
  int64_t step = 1;
  for (int64_t place = 0; place < count; ++place) {
    strides[order[place]] = step;
    step *= std::max<int64_t>(shape.at(order[place]), 1);
  }
  return {strides, count};
}

Ints broadcast_shapes(const Ints& a, const Ints& b) {
  int64_t shape[kMaxDims];
  const int64_t count = max(a.size(), b.size());
  for (int64_t i = 1; i <= count; ++i) {
    const int64_t x = i <= a.size() ? a.at(-i) : 1, y = i <= b.size() ? b.at(-i) : 1;
    if (x != y && x != 1 && y != 1) {
      throw Error("dimensions " + text(a) + " and " + text(b) + " do not broadcast: " + std::to_string(x) + " is not " +
                  std::to_string(y) + "\n  to fix: give both tensors the same dimensions, or 1");
    }
    shape[count - i] = x == 1 ? y : x;
  }
  return {shape, count};
}

namespace {

// Merges `lead` dimensions that all tensors have, `stride(t, i)` apart in each; see collapse_rows. Returns whether at most
// `ndims` remain.
template <class Extent, class Stride>
bool collapse(int64_t lead, int count, int ndims, const Extent& extent_of, const Stride& stride, int64_t* sizes,
              int64_t* strides) {
  bool empty = false;
  for (int64_t i = 0; i < lead; ++i) empty = empty || extent_of(i) == 0;
  // Filled from the innermost dimension outwards: `used` of the ndims places, the last ones, are taken.
  for (int d = 0; d < ndims; ++d) {
    sizes[d] = 1;
    for (int t = 0; t < count; ++t) strides[t * ndims + d] = 0;
  }
  if (empty) {
    sizes[ndims - 1] = 0;
    return true;
  }
  int used = 0;
  for (int64_t i = lead - 1; i >= 0; --i) {
    const int64_t extent = extent_of(i);
    if (extent == 1) continue;
    bool merges = used > 0;
    for (int t = 0; merges && t < count; ++t) {
      merges = stride(t, i) == sizes[ndims - used] * strides[t * ndims + ndims - used];
    }
    if (merges) {
      sizes[ndims - used] *= extent;
      continue;
    }
    ++used;
    if (used > ndims) return false;
    sizes[ndims - used] = extent;
    for (int t = 0; t < count; ++t) strides[t * ndims + ndims - used] = stride(t, i);
  }
  return true;
}

[[noreturn, gnu::cold]] void too_many_strides(const char* what, const Tensor* const* tensors, int count, int ndims) {
  std::string layouts;
  for (int t = 0; t < count; ++t) {
    layouts += std::string(t ? " and " : "") + tensors[t]->name() + " of shape " + text(tensors[t]->shape()) +
               " with strides " + text(tensors[t]->strides());
  }
  throw Error(std::string("the ") + what + " of " + layouts + " need more than " + std::to_string(ndims) +
              (ndims == 1 ? " stride" : " strides") + ", which is what the kernel takes\n  to fix: call " +
              (count == 1 ? ".contiguous() on the tensor" : ".expand(...) on the one that repeats, and .contiguous() on all") +
              " before the op");
}

}  // namespace

void collapse_rows(const Tensor* const* tensors, int count, int ndims, int64_t* sizes, int64_t* strides) {
  const Tensor& first = *tensors[0];
  const int64_t lead = first.dim() - 1;
  if (lead < 0) throw Error(std::string(first.name()) + " has no dimensions, so it has no rows");
  for (int t = 1; t < count; ++t) {
    bool equal = tensors[t]->dim() == first.dim();
    for (int64_t i = 0; equal && i < lead; ++i) equal = tensors[t]->size(i) == first.size(i);
    if (!equal) {
      throw Error(std::string(first.name()) + " of shape " + text(first.shape()) + " and " + tensors[t]->name() + " of shape " +
                  text(tensors[t]->shape()) + " do not have the same rows");
    }
  }
  const bool fits = collapse(
      lead, count, ndims, [&](int64_t i) { return first.size(i); }, [&](int t, int64_t i) { return tensors[t]->stride(i); },
      sizes, strides);
  if (!fits) too_many_strides("rows", tensors, count, ndims);
}

void collapse_batches(const Tensor* const* tensors, int count, int ndims, int64_t* sizes, int64_t* strides) {
  Ints shape;
  for (int t = 0; t < count; ++t)
    shape = broadcast_shapes(shape, slice(tensors[t]->shape(), 0, max(tensors[t]->dim() - 2, int64_t{0})));
  const bool fits = collapse(
      shape.size(), count, ndims, [&](int64_t i) { return shape.at(i); },
      [&](int t, int64_t i) {
        const Tensor& x = *tensors[t];
        const int64_t own = i - (shape.size() - (x.dim() - 2));
        return own < 0 || x.size(own) == 1 ? int64_t{0} : x.stride(own);
      },
      sizes, strides);
  if (!fits) too_many_strides("batches", tensors, count, ndims);
}

std::string text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string result(buffer, end);
  const bool plain = result.find_first_of(".en") == std::string::npos;  // Python prints 1.0, not 1
  return plain ? result + ".0" : result;
}

std::string text(const Ints& value) {
  std::string result = "(";
  for (int64_t i = 0; i < value.size(); ++i) result += (i ? ", " : "") + std::to_string(value.at(i));
  return result + (value.size() == 1 ? ",)" : ")");
}

}  // namespace kernelpack
