// Ops as C++ functions of torch's own types, which torch calls without boxing: that is most of what a call takes through the
// stable ABI. What includes this is compiled with torch's C++ headers, and serves the release of torch that they are of.
#pragma once

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/boxed.h"
#include "unboxed/gradients.h"

namespace kernelpack {

// -- arguments

// What is read of an argument before the call: of a tensor its fields, of all else the value.
inline TensorFields read_argument(const at::Tensor& x) {
  const auto handle = reinterpret_cast<AtenTensorHandle>(const_cast<at::Tensor*>(&x));  // that is what handles are in libtorch
  const c10::TensorImpl& impl = *x.unsafeGetTensorImpl();
  if (!impl.key_set().has(c10::DispatchKey::Dense) || impl.has_symbolic_sizes_strides()) return {handle};
  try {
    const at::Device device = impl.device();
    return {handle,
            impl.sizes().data(),
            impl.strides().data(),
            impl.dim(),
            x.mutable_data_ptr(),
            static_cast<int32_t>(x.scalar_type()),
            static_cast<int32_t>(device.type()),
            device.index()};
  } catch (const c10::Error&) {  // the op finds the same, and says so in its own words
    return {handle};
  }
}
inline std::optional<TensorFields> read_argument(const std::optional<at::Tensor>& x) {
  return x.has_value() ? std::optional(read_argument(*x)) : std::nullopt;
}
inline int64_t read_argument(const c10::SymInt& value) {
  return value.guard_int("a kernelpack op", 0);
}
inline std::optional<int64_t> read_argument(const std::optional<c10::SymInt>& value) {
  return value.has_value() ? std::optional(read_argument(*value)) : std::nullopt;
}
inline std::vector<int64_t> read_argument(c10::SymIntArrayRef values) {
  std::vector<int64_t> read;
  read.reserve(values.size());
  for (const c10::SymInt& value : values) read.push_back(read_argument(value));
  return read;
}
template <class Value>
const Value& read_argument(const Value& value) {
  return value;
}

// How it is put on the stack: as torch does it, but that tensors stay the caller's.
inline StableIValue word(const TensorFields& x) {
  return reinterpret_cast<StableIValue>(&x);
}
template <class Number>
  requires std::is_arithmetic_v<Number>
StableIValue word(Number value) {
  return give(value);
}
inline StableIValue word(at::ScalarType dtype) {
  return give(static_cast<int32_t>(dtype));
}
inline StableIValue word(const at::Device& device) {
  return static_cast<uint64_t>(device.type()) << 32 | static_cast<uint32_t>(device.index());
}
template <class Value>
StableIValue word(const std::optional<Value>& value) {
  return value.has_value() ? reinterpret_cast<StableIValue>(new StableIValue(word(*value))) : 0;  // the function frees it
}
template <class List>
StableIValue list_word(const List& values) {
  StableListHandle list = nullptr;
  torch_new_list_reserve_size(values.size(), &list);
  for (const typename List::value_type& value : values) torch_list_push_back(list, word(value));
  return reinterpret_cast<StableIValue>(list);  // the function frees it
}
template <class Value>
StableIValue word(at::ArrayRef<Value> values) {
  return list_word(values);
}
inline StableIValue word(const std::vector<int64_t>& values) {
  return list_word(values);
}
inline StableIValue word(const c10::List<bool>& values) {
  return list_word(values);
}

// -- results

template <class Result>
Result take_result(StableIValue word) {
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    auto* tensor = reinterpret_cast<at::Tensor*>(word);
    at::Tensor result = std::move(*tensor);
    delete tensor;
    return result;
  } else if constexpr (std::is_same_v<Result, c10::SymInt>) {
    return take<int64_t>(word);
  } else {
    return take<Result>(word);
  }
}

template <class Result>
struct Results {
  static constexpr size_t count = 1;
  static Result take(const StableIValue* stack) { return take_result<Result>(stack[0]); }
};
template <>
struct Results<void> {
  static constexpr size_t count = 0;
  static void take(const StableIValue* /*stack*/) {}
};
template <class... Each>
struct Results<std::tuple<Each...>> {
  static constexpr size_t count = sizeof...(Each);
  static std::tuple<Each...> take(const StableIValue* stack) {
    return std::tuple<Each...>{take_result<Each>(*stack++)...};  // braces: from left to right
  }
};

// -- functions

// A boxed function with a C++ signature.
template <class Signature>
class Unboxed;
template <class Result, class... Arguments>
class Unboxed<Result(Arguments...)> {
 public:
  explicit Unboxed(BoxedFunction function) : function_(function) {}
  Result operator()(Arguments... arguments) const {
    const std::tuple<decltype(read_argument(arguments))...> values{read_argument(arguments)...};
    std::array<StableIValue, std::max({sizeof...(Arguments), Results<Result>::count, size_t{1}})> stack;
    size_t count = 0;
    std::apply([&](const auto&... each) { ((stack[count++] = word(each)), ...); }, values);
    function_(stack.data(), count | kTensorsAreFields, Results<Result>::count);
    return Results<Result>::take(stack.data());
  }

 private:
  BoxedFunction function_;
};

template <class Signature>
torch::CppFunction unboxed(BoxedFunction function) {
  return torch::CppFunction(Unboxed<Signature>(function));
}
template <class Signature, uint64_t written>
torch::CppFunction without_gradient(const std::string& op, const std::string& overload) {
  return torch::CppFunction(WithoutGradient<Signature, written>(op, overload));
}
template <class Signature, uint64_t written>
torch::CppFunction with_new_versions(const std::string& op, const std::string& overload) {
  return torch::CppFunction(WithNewVersions<Signature, written>(op, overload));
}

// What an exception says, without where in torch it comes from.
inline std::string reason(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  return torchs != nullptr ? torchs->what_without_backtrace() : error.what();
}

// An op that is known here.
struct UnboxedOp {
  const char* schema;
  torch::CppFunction (*unboxed)(BoxedFunction function);
  torch::CppFunction (*without_gradient)(const std::string& op, const std::string& overload);
  torch::CppFunction (*with_new_versions)(const std::string& op,
                                          const std::string& overload);  // nullptr: writes to no argument
};
template <class Signature, uint64_t written>
constexpr UnboxedOp unboxed_op(const char* schema) {
  if constexpr (written == 0) {
    return {schema, unboxed<Signature>, without_gradient<Signature, written>, nullptr};
  } else {
    return {schema, unboxed<Signature>, without_gradient<Signature, written>, with_new_versions<Signature, written>};
  }
}

// Finds the op of a schema and calls `body` with it. Returns whether there is one and torch took what `body` registers.
template <size_t count, class Body>
bool with_op(const UnboxedOp (&ops)[count], const char* schema, const char* name, const Body& body) {
  for (const UnboxedOp& op : ops) {
    if (std::strcmp(op.schema, schema) != 0) continue;
    try {
      body(op);
      return true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "kernelpack: torch refuses a function of %s without boxing: %s\n", name, reason(error).c_str());
      return false;
    }
  }
  return false;
}

// The body of Unboxing::impl.
template <size_t count>
bool impl_unboxed(const UnboxedOp (&ops)[count], TorchLibraryHandle library, const char* schema, const char* name,
                  BoxedFunction function) {
  return with_op(ops, schema, name,
                 [&](const UnboxedOp& op) { reinterpret_cast<torch::Library*>(library)->impl(name, op.unboxed(function)); });
}

// The body of Unboxing::impl_autograd.
template <size_t count>
bool impl_autograd(const UnboxedOp (&ops)[count], TorchLibraryHandle autograd, TorchLibraryHandle in_place,
                   const char* name_space, const char* schema, const char* name) {
  const std::string whole = name, op_name = std::string(name_space) + "::" + whole.substr(0, whole.find('.'));
  const std::string overload = whole.find('.') == std::string::npos ? "" : whole.substr(whole.find('.') + 1);
  return with_op(ops, schema, name, [&](const UnboxedOp& op) {
    reinterpret_cast<torch::Library*>(autograd)->impl(name, op.without_gradient(op_name, overload));
    if (op.with_new_versions == nullptr) return;
    reinterpret_cast<torch::Library*>(in_place)->impl(name, op.with_new_versions(op_name, overload));
  });
}

// -- allocation

// See Unboxing::empty_strided. Throws c10::OutOfMemoryError.
inline const char* empty_strided(int64_t dim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device_type,
                                 int32_t device_index, AtenTensorHandle* handle, void** data) {
  const at::IntArrayRef shape(sizes, dim), steps(strides, dim);
  const auto type = static_cast<at::ScalarType>(dtype);
  const at::Device device(static_cast<at::DeviceType>(device_type), static_cast<at::DeviceIndex>(device_index));
  at::Tensor made;
  try {
    if (at::globalContext().deterministicAlgorithms() || !(device.is_cpu() || device.is_cuda())) {
      made = at::empty_strided(shape, steps, at::TensorOptions(type).device(device));  // it may fill what it allocates
    } else if (device.is_cpu()) {
      made = at::detail::empty_strided_cpu(shape, steps, type);
    } else {
      const c10::DeviceGuard guard(device);
      made = at::detail::empty_strided_generic(shape, steps, at::detail::getCUDAHooks().getCUDADeviceAllocator(),
                                               c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
    }
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    static thread_local std::string refusal;
    refusal = reason(error);
    return refusal.c_str();
  }
  *data = made.mutable_data_ptr();
  *handle = reinterpret_cast<AtenTensorHandle>(new at::Tensor(std::move(made)));
  return nullptr;
}

}  // namespace kernelpack
