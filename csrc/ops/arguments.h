// Reads the arguments that torch puts on the stack of a boxed call. Each function takes over what it reads.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <optional>

#include "ops/tensor.h"

namespace kernelpack {

// torch passes an optional as a null pointer, or as a heap cell that the callee frees.
template <class Value>
std::optional<Value> take_optional(StableIValue word) {
  auto* cell = take<StableIValue*>(word);
  if (cell == nullptr) return std::nullopt;
  const StableIValue inner = *cell;
  delete cell;
  return take<Value>(inner);
}

inline StableIValue take_optional_tensor(StableIValue word) {
  return take_optional<StableIValue>(word).value_or(0);
}

inline DType take_dtype(StableIValue word) {
  return dtype_from_torch(take<int32_t>(word));
}

inline std::optional<DType> take_optional_dtype(StableIValue word) {
  const std::optional<int32_t> code = take_optional<int32_t>(word);
  return code.has_value() ? std::optional<DType>(dtype_from_torch(*code)) : std::nullopt;
}

// The device's type is in the upper half, its index in the lower.
inline Device to_device(StableIValue word) {
  return {static_cast<int32_t>(word >> 32), static_cast<int32_t>(word & 0xFFFFFFFF)};
}
inline Device take_device(StableIValue word) {
  return to_device(word);
}
inline std::optional<Device> take_optional_device(StableIValue word) {
  const std::optional<StableIValue> inner = take_optional<StableIValue>(word);
  return inner.has_value() ? std::optional<Device>(to_device(*inner)) : std::nullopt;
}

// A float[] argument.
class Floats {
 public:
  void push(double value) {
    if (size_ == kMaxDims) throw Error("a list argument has more than 64 values");
    values_[size_++] = value;
  }
  int64_t size() const { return size_; }
  double at(int64_t index) const {
    const int64_t i = index < 0 ? index + size_ : index;
    if (i < 0 || i >= size_)
      throw Error("index " + std::to_string(index) + " is out of range for " + std::to_string(size_) + " values");
    return values_[i];
  }

 private:
  double values_[kMaxDims];
  int64_t size_ = 0;
};

template <class List, class Element>
List take_list(StableIValue word) {
  struct Owner {
    StableListHandle list;
    ~Owner() { torch_delete_list(list); }
  } const owner{take<StableListHandle>(word)};
  size_t size = 0;
  torch_list_size(owner.list, &size);
  List values;
  for (size_t i = 0; i < size; ++i) {
    StableIValue element = 0;
    torch_list_get_item(owner.list, i, &element);
    values.push(take<Element>(element));
  }
  return values;
}

inline Ints take_ints(StableIValue word) {
  return take_list<Ints, int64_t>(word);
}
inline Floats take_floats(StableIValue word) {
  return take_list<Floats, double>(word);
}

}  // namespace kernelpack
