// Tensors as host functions see them: views of torch's, read once through the stable C ABI. No allocation.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/host_math.h"
#include "kernels/kernel.h"
#include "ops/shim.h"

namespace kernelpack {

constexpr int kMaxDims = 64;  // torch's own limit

// The dtypes that kernels can read. `none` stands for an absent optional tensor in variant tables.
enum class DType : int8_t {
  none,
  float16,
  bfloat16,
  float32,
  float64,
  float8_e4m3fn,
  float8_e5m2,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,
  other,  // one that no kernel reads
};
constexpr int kDTypes = static_cast<int>(DType::other) + 1;

const char* name_of(DType dtype);

// libtorch's numbers of dtypes and device types, asked for once. What calls read is in the first 64 bytes.
struct alignas(64) TorchCodes {
  int32_t cpu;
  int32_t cuda;
  int8_t to_torch[kDTypes];  // -1 where tensors cannot have it
  DType from_torch[128];
  TorchCodes();
};
[[gnu::visibility("hidden")]] extern const TorchCodes torch_codes;

inline DType dtype_from_torch(int32_t code) {
  return static_cast<uint32_t>(code) < 128 ? torch_codes.from_torch[code] : DType::other;
}
[[noreturn, gnu::cold]] void no_dtype_of_tensors(DType dtype);
// Throws Error for dtypes that tensors cannot have.
inline int32_t dtype_to_torch(DType dtype) {
  const int32_t code = torch_codes.to_torch[static_cast<int>(dtype)];
  if (code < 0) no_dtype_of_tensors(dtype);
  return code;
}
// Returns the bytes of an element; 0 where kernels cannot read it.
inline int64_t size_of(DType dtype) {
  constexpr int8_t kSizes[] = {0, 2, 2, 4, 8, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 0};
  static_assert(sizeof(kSizes) == static_cast<size_t>(DType::other) + 1);
  return kSizes[static_cast<size_t>(dtype)];
}

// A torch device: `type` is libtorch's number.
struct Device {
  int32_t type;
  int32_t index;
  bool operator==(const Device& other) const { return type == other.type && index == other.index; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  bool is_cuda() const { return type == torch_codes.cuda; }
};

std::string name_of(const Device& device);

// Where the tensors of a backend's calls may be. Torch has an order of device types and calls the functions of the last one
// among a call's tensors, so that CPU functions get CPU tensors alone, and CUDA's, CUDA and CPU tensors, of which the latter
// have no index: what is known is not asked for.
struct CallDevices {
  int32_t type;     // torch's number of the devices that the backend serves
  bool asks_index;  // else no tensor has one
  bool asks_type;   // else those with an index have `type`
  static CallDevices of(int32_t type);
};

// A shape or strides: values of its own, or a view of a tensor's, which live as long as the call.
class Ints {
 public:
  Ints() = default;
  Ints(std::initializer_list<int64_t> values) : Ints(values.begin(), static_cast<int64_t>(values.size())) {}
  Ints(const int64_t* values, int64_t count) { copy(values, count); }
  Ints(const Ints& other) { *this = other; }
  Ints& operator=(const Ints& other) {
    if (other.data_ == other.values_) {
      copy(other.values_, other.size_);
    } else {
      data_ = other.data_;
      size_ = other.size_;
    }
    return *this;
  }
  static Ints view(const int64_t* values, int64_t count) {
    Ints result;
    result.data_ = values;
    result.size_ = count;
    return result;
  }
  void push(int64_t value) {
    if (size_ == kMaxDims) throw Error("a shape has more than 64 dimensions");
    if (data_ != values_) copy(data_, size_);
    values_[size_++] = value;
  }
  int64_t size() const { return size_; }
  const int64_t* data() const { return data_; }
  // A negative index counts from the end.
  int64_t at(int64_t index) const {
    const int64_t i = index < 0 ? index + size_ : index;
    if (i < 0 || i >= size_)
      throw Error("index " + std::to_string(index) + " is out of range for " + std::to_string(size_) + " values");
    return data_[i];
  }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }

 private:
  friend Ints contiguous_strides(const Ints& shape);

  void copy(const int64_t* values, int64_t count) {
    if (count > kMaxDims) throw Error("a shape has more than 64 dimensions");
    for (int64_t i = 0; i < count; ++i) values_[i] = values[i];
    data_ = values_;
    size_ = count;
  }

  const int64_t* data_ = values_;
  int64_t size_ = 0;
  int64_t values_[kMaxDims];
};

bool same(const Ints& a, const Ints& b);
Ints concat(const Ints& a, const Ints& b);
Ints slice(const Ints& values, int64_t start, int64_t stop);  // as Python's values[start:stop]
int64_t product(const Ints& values);

// Row-major; a dimension of size 0 counts as 1, as in torch.
inline Ints contiguous_strides(const Ints& shape) {
  Ints strides;
  strides.size_ = shape.size();
  int64_t step = 1;
  for (int64_t i = shape.size() - 1; i >= 0; --i) {
    strides.values_[i] = step;
    step *= max(shape.data_[i], int64_t{1});
  }
  return strides;
}

// A tensor: a view that is cheap to copy. It lives as long as the call it belongs to.
class Tensor {
 public:
  // An absent one.
  explicit Tensor(const char* name = "")
      : handle_(nullptr),
        name_(name),
        dim_(0),
        sizes_(nullptr),
        strides_(nullptr),
        data_(nullptr),
        device_{-1, -1},
        torch_dtype_(0),
        dtype_(DType::none) {}
  // Reads a torch tensor. Throws Error for one that has no strides (sparse, ...) or no memory.
  Tensor(AtenTensorHandle handle, const char* name, const CallDevices& devices);
  // One that was read already. Throws Error for one that has no memory.
  Tensor(const TensorFields& fields, const char* name)
      : handle_(fields.handle),
        name_(name),
        dim_(fields.dim),
        sizes_(fields.sizes),
        strides_(fields.strides),
        data_(fields.data),
        device_{fields.device_type, fields.device_index},
        torch_dtype_(fields.dtype),
        dtype_(dtype_from_torch(fields.dtype)) {
    if (dim_ > kMaxDims || data_ == nullptr) check_readable();
  }
  // One that was just allocated: sizes and strides are read when they are asked for.
  Tensor(AtenTensorHandle handle, const char* name, int64_t dim, void* data, DType dtype, int32_t torch_dtype,
         const Device& device)
      : handle_(handle),
        name_(name),
        dim_(dim),
        sizes_(nullptr),
        strides_(nullptr),
        data_(data),
        device_(device),
        torch_dtype_(torch_dtype),
        dtype_(dtype) {}

  bool defined() const { return handle_ != nullptr; }
  const char* name() const { return name_; }
  AtenTensorHandle handle() const { return handle_; }
  int64_t dim() const { return dim_; }
  int64_t size(int64_t index) const { return sizes()[checked(index)]; }
  int64_t stride(int64_t index) const {
    if (strides_ == nullptr) read_layout();
    return strides_[checked(index)];
  }
  Ints shape() const { return Ints::view(sizes(), dim_); }
  Ints strides() const {
    if (strides_ == nullptr) read_layout();
    return Ints::view(strides_, dim_);
  }
  int64_t numel() const {
    const int64_t* extents = sizes();
    int64_t count = 1;
    for (int64_t i = 0; i < dim_; ++i) count *= extents[i];
    return count;
  }
  // Whether it is there and not empty. torch gives empty tensors no address, and no other tensor without one is read.
  bool has_elements() const { return data_ != nullptr; }
  bool is_contiguous() const;
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool is_cuda() const { return device_.is_cuda(); }
  int64_t element_size() const { return size_of(dtype_); }
  void* data() const { return data_; }
  // The dtype as torch calls it, for errors: also of dtypes that no kernel reads.
  std::string dtype_name() const;

 private:
  [[gnu::cold]] void read_layout() const;
  [[noreturn, gnu::cold]] void cannot_be_read() const;
  [[gnu::cold]] void check_readable() const;  // throws Error for one with too many dimensions, or elements and no memory
  const int64_t* sizes() const {
    if (sizes_ == nullptr) read_layout();
    return sizes_;
  }
  int64_t checked(int64_t index) const {
    const int64_t i = index < 0 ? index + dim_ : index;
    if (i < 0 || i >= dim_) out_of_range(index);
    return i;
  }
  [[noreturn, gnu::cold]] void out_of_range(int64_t index) const;

  AtenTensorHandle handle_;
  const char* name_;
  int64_t dim_;
  mutable const int64_t* sizes_;
  mutable const int64_t* strides_;
  void* data_;
  Device device_;
  int32_t torch_dtype_;
  DType dtype_;
};

// The strides with which x is read as if it had `shape`: 0 where x has size 1 or no such dimension, or is None.
Ints broadcast_strides(const Tensor& x, const Ints& shape);

// The strides of a dense tensor of `shape` whose dimensions lie in memory in the order of x's, the last one innermost. A
// dimension that x repeats (stride 0) lies outside of those to its right. Throws Error if x has another number of dimensions.
Ints strides_like(const Tensor& x, const Ints& shape);

// The shape to which both broadcast. Throws Error where there is none.
Ints broadcast_shapes(const Ints& a, const Ints& b);

// All dimensions but the last of equally shaped tensors, merged into `ndims`, outermost first.
template <int ndims, int count>
struct Rows {
  int64_t sizes[ndims];
  int64_t strides[count][ndims];
};

// Merges rows; fills up in front with size 1 and stride 0. Throws Error if more than `ndims` dimensions remain.
void collapse_rows(const Tensor* const* tensors, int count, int ndims, int64_t* sizes, int64_t* strides);

template <int ndims, class... Tensors>
Rows<ndims, sizeof...(Tensors)> collapse_rows(const Tensors&... tensors) {
  Rows<ndims, sizeof...(Tensors)> rows;
  const Tensor* const list[] = {&tensors...};
  collapse_rows(list, sizeof...(Tensors), ndims, rows.sizes, &rows.strides[0][0]);
  return rows;
}

// The same of all dimensions but the last two, which broadcast to each other: a stride is 0 where a tensor repeats.
void collapse_batches(const Tensor* const* tensors, int count, int ndims, int64_t* sizes, int64_t* strides);

template <int ndims, class... Tensors>
Rows<ndims, sizeof...(Tensors)> collapse_batches(const Tensors&... tensors) {
  Rows<ndims, sizeof...(Tensors)> batches;
  const Tensor* const list[] = {&tensors...};
  collapse_batches(list, sizeof...(Tensors), ndims, batches.sizes, &batches.strides[0][0]);
  return batches;
}

// Values as they stand in error messages.
inline std::string text(const char* value) {
  return value;
}
inline std::string text(const std::string& value) {
  return value;
}
inline std::string text(bool value) {
  return value ? "True" : "False";
}
inline std::string text(int64_t value) {
  return std::to_string(value);
}
std::string text(double value);
inline std::string text(DType value) {
  return std::string("torch.") + name_of(value);
}
inline std::string text(const Device& value) {
  return name_of(value);
}
std::string text(const Ints& value);  // (2, 3)

}  // namespace kernelpack
