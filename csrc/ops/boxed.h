// What an op library and the library of its unboxed functions have in common: how an op is called by words on a stack.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdint>
#include <cstring>

namespace kernelpack {

// How torch's stable ABI calls an op: arguments, then results, are words of `stack`.
using BoxedFunction = void (*)(StableIValue* stack, uint64_t argument_count, uint64_t result_count);

// The value of a word, and the word of a value: as torch converts them, little endian.
template <class Value>
Value take(StableIValue word) {
  static_assert(sizeof(Value) <= sizeof(StableIValue));
  Value value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
template <class Value>
StableIValue give(Value value) {
  StableIValue word = 0;
  std::memcpy(&word, &value, sizeof(value));
  return word;
}

// Added to `argument_count`, whose highest bit no call of torch's has: the words of tensors are addresses of TensorFields,
// which stay the caller's. Torch gives handles, which the function frees.
constexpr uint64_t kTensorsAreFields = uint64_t{1} << 63;

// What calls read of a tensor. Where `sizes` is nullptr (it is not strided, or undefined), all else is read by `handle`.
struct TensorFields {
  AtenTensorHandle handle;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t dim;
  void* data;
  int32_t dtype;  // this and what follows as numbers of libtorch
  int32_t device_type;
  int32_t device_index;
};

// Allocates a tensor and writes its handle and address. Returns nullptr, or why torch refused: "" where it does not say.
using EmptyStrided = const char* (*)(int64_t dim, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                     int32_t device_type, int32_t device_index, AtenTensorHandle* handle, void** data);

// What the library of unboxed functions exports. The number in the symbol is raised whenever something in this file changes its
// meaning: the two libraries may be of different versions of kernelpack.
constexpr const char* kUnboxingSymbol = "kernelpack_unboxing_2";
struct Unboxing {
  // Registers an op with a torch library that was opened for its namespace and a dispatch key, so that torch calls `function`
  // without boxing. `schema` is the op's, `name` includes the overload. Returns whether it did.
  bool (*impl)(TorchLibraryHandle library, const char* schema, const char* name, BoxedFunction function);
  // Registers what an op does for autograd: it refuses gradients, and gives tensors that it writes to a new version. The torch
  // libraries were opened for the keys Autograd and ADInplaceOrView. Returns whether it did.
  bool (*impl_autograd)(TorchLibraryHandle autograd, TorchLibraryHandle in_place, const char* name_space, const char* schema,
                        const char* name);
  EmptyStrided empty_strided;  // what torch's own ops call, below the dispatcher
};

}  // namespace kernelpack
