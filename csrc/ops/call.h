// One call of an op: its arguments, what it allocates, the checks that name the op, and the launches.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <functional>
#include <new>
#include <optional>
#include <string>

#include "kernels/table.h"
#include "ops/boxed.h"
#include "ops/stream.h"
#include "ops/tensor.h"
#include "ops/trace.h"
#include "ops/tuned.h"

namespace kernelpack {

constexpr int kMaxOutputs = 8;
constexpr int kMaxTensors = 64;  // arguments and allocations of one call

// What errors say about an op and how to build more of it.
struct OpInfo {
  const char* name;   // my::mha
  const char* place;  // my_ops.py:12
  const char* build;  // the command that built the library
};

// The code of a library for one backend. What calls read is in its first 64 bytes.
class alignas(64) Backend {
 public:
  // `index`: its place among the library's; `device_type`: torch's number of the devices that it serves.
  Backend(int index, const Launcher& launcher, const char* const* targets, int target_count, int32_t device_type);

  const Launcher& launcher() const { return launcher_; }
  int index() const { return index_; }
  const CallDevices& devices() const { return devices_; }
  const char* target_name(int target) const { return targets_[target]; }
  // Whether calls are recorded.
  bool is_traced() const { return is_traced_; }
  // Returns the index of the target whose code runs a kernel best on a device. Throws Error if none runs.
  int target(const OpInfo& op, int device, const KernelTraits& kernel) {
    const int known = chosen_[place_of(device)][kernel.kind()].load(std::memory_order_relaxed);
    return known > 0 ? known - 1 : choose_target(op, device, kernel);
  }
  // Returns why none of a CPU's calls can run here, or "". Which GPUs there are is known when one is first used.
  std::string cpu_refusal(const OpInfo& op) const;
  // Launches on the current stream of a device. Throws Error.
  void launch(Kernel& kernel, int device, const Grid& grid, void* const* params) {
    const CurrentStream known = stream_.load(std::memory_order_relaxed);
    void* stream = nullptr;
    if (known == nullptr || known(device, &stream) != 0) stream = find_current_stream(device);
    if (is_shown_) return launch_shown(kernel, device, stream, grid, params);
    launch_(kernel, device, stream, grid, params);
  }

 private:
  [[gnu::cold]] int choose_target(const OpInfo& op, int device, const KernelTraits& kernel);
  [[gnu::cold]] void* find_current_stream(int device);
  void launch_shown(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params) const;
  // Torch numbers devices in 8 bits; -1 is the only one of a type, the CPU.
  static uint8_t place_of(int device) { return static_cast<uint8_t>(device + 1); }

  decltype(Launcher::launch) launch_;  // the launcher's
  const Launcher& launcher_;
  const char* const* targets_;
  std::atomic<CurrentStream> stream_{nullptr};  // nullptr: not asked yet
  CallDevices devices_;
  int target_count_;
  uint16_t index_;
  bool is_traced_;
  bool is_shown_;  // its launches are told to torch's profiler, which does not see them
  // The target chosen for each device and kind of kernel, plus 1; 0: not asked yet.
  std::atomic<uint16_t> chosen_[256][KernelTraits::kKinds] = {};
};

// A launch in a host function: where its variants are, for each target of each backend.
struct LaunchSite {
  const char* kernel;
  KernelTraits traits;
  const TargetVariants* const* variants;  // by backend, then target
  // What sets variants apart at each point, in words for traces; the order is that of the bits of `Point::assumptions`.
  const char* const* assumptions;
  int assumption_count;
  const Tuning* tuning;  // nullptr where no launch has configs to choose among
};

// The dtypes that were built of a tensor argument, each with its place along the axis.
class DTypeAxis {
 public:
  struct Entry {
    DType dtype;
    int8_t place;
  };
  constexpr DTypeAxis(std::initializer_list<Entry> built) {
    for (int8_t& place : places_) place = -1;
    for (const Entry& entry : built) places_[static_cast<int>(entry.dtype)] = entry.place;
  }
  // Returns which of them one is, or -1.
  constexpr int place(DType dtype) const { return places_[static_cast<int>(dtype)]; }

 private:
  int8_t places_[kDTypes] = {};
};

// An entry of such an axis that stands for whatever dtype another argument has.
struct SameDType {
  const Tensor& x;
  int place;
};

// An error that names its op already.
class OpError : public Error {
 public:
  using Error::Error;
};

// The tensors of a call, by reference.
using Tensors = std::initializer_list<std::reference_wrapper<const Tensor>>;

class Call {
 public:
  // `argument_count` is what the boxed function was given.
  Call(const OpInfo& op, Backend& backend, uint64_t argument_count)
      : op_(op), backend_(backend), owns_arguments_((argument_count & kTensorsAreFields) == 0) {}
  ~Call() {
    for (int i = 0; i < owned_count_; ++i) torch_functions.delete_tensor(owned_[i]);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Runs the op's functor, with the op's name in front of what it throws.
  template <class Body>
  void run(const Body& body) const {
    try {
      body();
    } catch (const OpError&) {
      throw;
    } catch (const Error& error) {
      fail(error.what());
    }
  }

  // Takes over a tensor that is on the stack, or 0 for an absent one: unless the caller keeps it, it is freed when the call
  // ends.
  StableIValue own(StableIValue tensor) {
    if (owns_arguments_ && tensor != 0) owned_[owned_count_++] = reinterpret_cast<AtenTensorHandle>(tensor);
    return tensor;
  }
  // Reads a tensor that is on the stack. Throws Error.
  Tensor read(StableIValue tensor, const char* name) const {
    if (tensor == 0) return Tensor(name);
    if (owns_arguments_) return Tensor(reinterpret_cast<AtenTensorHandle>(tensor), name, backend_.devices());
    const auto& fields = *reinterpret_cast<const TensorFields*>(tensor);
    return fields.sizes != nullptr ? Tensor(fields, name) : Tensor(fields.handle, name, backend_.devices());
  }
  // The tensor that result `index` is written to, for calls of the .out overload.
  void give_output(int index, const Tensor& tensor) {
    new (given_memory_ + index * sizeof(Tensor)) Tensor(tensor);
    given_count_ = index + 1;
  }

  // -- checks
  template <class... Parts>
  [[noreturn, gnu::cold]] void fail(const Parts&... parts) const {
    const OpError error(std::string(op_.name) + ": " + (text(parts) + ...));
    if (backend_.is_traced()) trace::refuse(error.what());
    throw error;
  }

  // Returns which of the dtypes that were built a tensor has; DType::none stands for an absent one. Throws Error.
  int dtype_axis(const Tensor& x, const DTypeAxis& built, std::initializer_list<SameDType> same = {}) const {
    if (built.place(x.dtype()) >= 0) return built.place(x.dtype());
    for (const SameDType& other : same) {
      if (other.x.dtype() == x.dtype()) return other.place;
    }
    dtype_not_built(x, built, same);
  }
  void check_same_dtype(const Tensor& x, const Tensor& other) const {
    if (!x.defined() || x.dtype() != other.dtype()) dtypes_differ(x, other);
  }
  // Returns which of the built values a constexpr has. Throws Error.
  template <size_t count, size_t buckets, size_t slots>
  int value_axis(const char* kernel, const ValueAxis<count, buckets, slots>& built, int64_t value) const {
    const int place = built.place(value);
    if (place < 0) value_not_built(kernel, built.name, value, built.values, count);
    return place;
  }
  // All tensors that are there must be on one device, which the call then runs on, and the given outputs must lie apart
  // from them and from each other: a kernel may read an argument after it has begun to write. Throws Error.
  template <class... Rest>
  void check_tensors(const Tensor& first, const Rest&... rest) {
    if (backend_.is_traced()) [[unlikely]]
      trace::begin(op_.name, {first, rest...});
    device_ = first.device();
    const bool together = ((rest.device() == device_ || !rest.defined()) && ...);
    if (!together || device_.type != backend_.devices().type) [[unlikely]]
      check_devices({first, rest...});
    if (given_count_ > 0) [[unlikely]]
      check_given_apart({first, rest...});
  }
  // For calls that write to a tensor, where one of their tensors is negated when it is read.
  [[noreturn, gnu::cold]] void refuse_negated() const;
  // A tensor that the op writes to must not repeat elements.
  void check_writable(const Tensor& x) const;

  // -- allocation
  // Returns a new tensor on the device that the call runs on; if it is a result of a call of the .out overload, the given one,
  // after checking it. Throws Error.
  Tensor empty(const char* name, int output, const Ints& shape, DType dtype);
  Tensor empty_strided(const char* name, int output, const Ints& shape, const Ints& strides, DType dtype);
  // Throws Error if a tensor would be on another device than the call runs on: kernels could not write to it.
  void check_device(const char* name, const Device& device) const;
  // Hands result `index` over to torch.
  void give_result(StableIValue* stack, int index, const Tensor& tensor) {
    if (owned_count_ > 0 && owned_[owned_count_ - 1] == tensor.handle()) [[likely]] {
      --owned_count_;
    } else {
      disown(tensor.handle());
    }
    stack[index] = reinterpret_cast<StableIValue>(tensor.handle());
  }

  // -- launches
  // Returns which config of a point is fastest for the sizes that its choice depends on.
  int config(const LaunchSite& site, int point, std::initializer_list<int64_t> sizes) const;
  // Returns the variant for a point of the launch's space and the assumptions that hold. Throws Error.
  Variant choose(const LaunchSite& site, int point, uint64_t held) const {
    const int target = backend_.target(op_, device_.index, site.traits);
    const Variant found = site.variants[backend_.index()][target].find(point, held);
    if (backend_.is_traced()) [[unlikely]]
      trace::launch(site, backend_.target_name(target), held, found);
    if (found.kernel == nullptr) variant_not_built(site, target);
    return found;
  }
  // `slots` are addresses of the values that the launch's variants choose their parameters from.
  void launch(const Variant& variant, const Grid& grid, void* const* slots) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) [[unlikely]]
      return;
    if (variant.parameters != nullptr) [[unlikely]]
      return launch_with_some(variant, grid, slots);
    backend_.launch(*variant.kernel, device_.index, grid, slots);
  }
  // Returns the value of a run-time parameter that is narrower than 64 bits. Throws Error where it does not fit.
  template <class Value>
  Value narrow(const char* kernel, const char* name, int64_t value) const {
    if (value != static_cast<Value>(value)) does_not_fit(kernel, name, value, 8 * sizeof(Value));
    return static_cast<Value>(value);
  }

 private:
  [[noreturn, gnu::cold]] void dtype_not_built(const Tensor& x, const DTypeAxis& built,
                                               std::initializer_list<SameDType> same) const;
  [[noreturn, gnu::cold]] void value_not_built(const char* kernel, const char* name, int64_t value, const int64_t* built,
                                               size_t count) const;
  [[noreturn, gnu::cold]] void variant_not_built(const LaunchSite& site, int target) const;
  void launch_with_some(const Variant& variant, const Grid& grid, void* const* slots) const;
  [[noreturn, gnu::cold]] void too_many_tensors() const;
  [[noreturn, gnu::cold]] void dtypes_differ(const Tensor& x, const Tensor& other) const;
  [[noreturn, gnu::cold]] void does_not_fit(const char* kernel, const char* name, int64_t value, int64_t bits) const;
  [[gnu::cold]] void check_devices(Tensors tensors);
  [[gnu::cold]] void check_given_apart(Tensors tensors) const;
  [[gnu::cold]] void disown(AtenTensorHandle handle);
  [[gnu::always_inline]] Tensor allocate(const char* name, const Ints& shape, const Ints& strides, DType dtype);
  bool is_given(int output) const { return output >= 0 && output < given_count_; }
  [[gnu::cold]] Tensor given_for(int output, const Ints& shape, const Ints& strides, DType dtype) const;
  [[noreturn, gnu::cold]] void allocation_failed(const char* name, const Ints& shape, DType dtype, const char* refusal) const;
  const Tensor& given(int index) const { return reinterpret_cast<const Tensor*>(given_memory_)[index]; }
  void check_apart(const Tensor& given, const Tensor& other) const;
  void check_given(const Tensor& given, const Ints& shape, const Ints& strides, DType dtype) const;

  const OpInfo& op_;
  Backend& backend_;
  const bool owns_arguments_;
  Device device_{-1, -1};
  // Only what is used of these is ever written: clearing them would take longer than the call's other steps.
  int owned_count_ = 0;
  int given_count_ = 0;
  AtenTensorHandle owned_[kMaxTensors];
  alignas(Tensor) unsigned char given_memory_[kMaxOutputs * sizeof(Tensor)];
};

// The values of a launch's run-time parameters, each in its natural C type in a slot of 8 bytes.
template <int count>
class Slots {
 public:
  template <class Value>
  void set(int slot, Value value) {
    static_assert(sizeof(Value) <= 8);
    *reinterpret_cast<Value*>(storage_ + 8 * slot) = value;
    addresses_[slot] = storage_ + 8 * slot;
  }
  void* const* addresses() const { return addresses_; }

 private:
  alignas(8) unsigned char storage_[8 * (count > 0 ? count : 1)];
  void* addresses_[count > 0 ? count : 1];
};

// The address of a tensor's first element, as guards see it.
inline uint64_t address(const Tensor& x) {
  return reinterpret_cast<uint64_t>(x.data());
}

// How many bytes a tensor covers, from its first element on.
inline int64_t reach(const Tensor& x) {
  int64_t last = 0;
  for (int64_t i = 0; i < x.dim(); ++i) last += (x.size(i) - 1) * x.stride(i);
  return x.numel() == 0 ? 0 : (last + 1) * x.element_size();
}

// None of host functions.
inline bool is_none(const Tensor& x) {
  return !x.defined();
}
template <class Value>
bool is_none(const std::optional<Value>& value) {
  return !value.has_value();
}
inline const Tensor& unwrap(const Tensor& x) {
  return x;
}
template <class Value>
const Value& unwrap(const std::optional<Value>& value) {
  return *value;
}

}  // namespace kernelpack
