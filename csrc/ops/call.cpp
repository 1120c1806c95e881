// Checks, allocation and launches of a call.
#include "ops/call.h"

#include "nativert/torch_profiler.h"
#include "ops/huge_pages.h"
#include "ops/shim.h"
#include "ops/stream.h"

namespace kernelpack {

Backend::Backend(int index, const Launcher& launcher, const char* const* targets, int target_count, int32_t device_type)
    : launch_(launcher.launch),
      launcher_(launcher),
      targets_(targets),
      devices_(CallDevices::of(device_type)),
      target_count_(target_count),
      index_(static_cast<uint16_t>(index)),
      is_traced_(trace::is_on()),
      is_shown_(launcher.takes_threads) {}

int Backend::choose_target(const OpInfo& op, int device, const KernelTraits& kernel) {
  const int found = launcher_.choose(targets_, target_count_, device, kernel);
  if (found < 0) throw Error(no_target_fits(launcher_, targets_, target_count_, device, op.build));
  chosen_[place_of(device)][kernel.kind()].store(static_cast<uint16_t>(found + 1), std::memory_order_relaxed);
  return found;
}

std::string Backend::cpu_refusal(const OpInfo& op) const {
  if (!launcher_.takes_threads) return "";
  try {
    if (launcher_.choose(targets_, target_count_, -1, {}) >= 0) return "";
  } catch (const Error&) {  // KERNELPACK_CPU_TARGET names what there is not: calls say so
    return "";
  }
  return no_target_fits(launcher_, targets_, target_count_, -1, op.build);
}

void Backend::launch_shown(Kernel& kernel, int device, void* stream, const Grid& grid, void* const* params) const {
  const ProfiledLaunch shown(kernel.name);
  launch_(kernel, device, stream, grid, params);
}

void* Backend::find_current_stream(int device) {
  const CurrentStream found =
      launcher_.current_stream != nullptr ? launcher_.current_stream : torch_stream(launcher_, devices_.type);
  stream_.store(found, std::memory_order_relaxed);
  void* stream = nullptr;
  shim(found(device, &stream), "looking for the current stream");
  return stream;
}

void Call::dtype_not_built(const Tensor& x, const DTypeAxis& built, std::initializer_list<SameDType> same) const {
  std::string names;
  bool named[kDTypes] = {};
  const auto add = [&](DType dtype) {
    bool& known = named[static_cast<int>(dtype)];
    if (!known) names += (names.empty() ? "" : ", ") + std::string(name_of(dtype));
    known = true;
  };
  const auto add_place = [&](int place) {
    for (int i = 0; i < kDTypes; ++i) {
      if (built.place(static_cast<DType>(i)) == place) add(static_cast<DType>(i));
    }
    for (const SameDType& other : same) {
      if (other.place == place) add(other.x.dtype());
    }
  };
  for (int place = 0; place < kDTypes; ++place) add_place(place);
  if (!x.defined()) fail(x.name(), " is None, built are: ", names, "\n  to fix: pass a tensor");
  std::string cure = "convert it with " + std::string(x.name()) + ".to(...)";
  if (x.dtype() != DType::other) {
    cure +=
        ", or add torch." + x.dtype_name() + " to variants[\"" + x.name() + "\"] at " + op_.place + " and run: " + op_.build;
  }
  fail(x.name(), " has dtype ", x.dtype_name(), ", built are: ", names, "\n  to fix: ", cure);
}

void Call::dtypes_differ(const Tensor& x, const Tensor& other) const {
  fail(x.name(), " has dtype ", x.dtype_name(), ", ", other.name(), " has ", other.dtype_name(),
       "\n  to fix: convert one of them with ", x.name(), ".to(...)");
}

void Call::value_not_built(const char* kernel, const char* name, int64_t value, const int64_t* built, size_t count) const {
  size_t nearest = 0;
  std::string names;
  const auto distance = [value](int64_t other) {
    return other > value ? static_cast<uint64_t>(other) - static_cast<uint64_t>(value)
                         : static_cast<uint64_t>(value) - static_cast<uint64_t>(other);
  };
  for (size_t i = 0; i < count; ++i) {
    if (distance(built[i]) < distance(built[nearest])) nearest = i;
    names += (i ? ", " : "") + std::to_string(built[i]);
  }
  fail(name, " of kernel ", kernel, " is ", value, ", built are: ", names, " (nearest: ", built[nearest], ")\n  to fix: add ",
       value, " to variants[\"", name, "\"] at ", op_.place, " and run: ", op_.build);
}

void Call::check_devices(Tensors tensors) {
  const Tensor* first = nullptr;
  for (const Tensor& x : tensors) {
    if (!x.defined()) continue;
    if (first == nullptr) {
      first = &x;
      device_ = x.device();
      const int32_t expected = backend_.devices().type;
      if (device_.type != expected) {
        fail(x.name(), " is on ", x.device(), ", this is the code for ", name_of(Device{expected, -1}),
             "\n  to fix: move all tensors to one device");
      }
    } else if (x.device() != first->device()) {
      fail(x.name(), " is on ", x.device(), ", ", first->name(), " is on ", first->device(),
           "\n  to fix: move all tensors to one device");
    }
  }
}

void Call::check_given_apart(Tensors tensors) const {
  for (int i = 0; i < given_count_; ++i) {
    for (const Tensor& x : tensors) check_apart(given(i), x);
    for (int j = 0; j < i; ++j) check_apart(given(i), given(j));
  }
}

void Call::check_apart(const Tensor& given, const Tensor& other) const {
  if (!given.defined() || !other.defined() || given.numel() == 0 || other.numel() == 0) return;
  const uint64_t a = address(given), b = address(other);
  if (a < b + reach(other) && b < a + reach(given)) {
    fail(given.name(), " lies in the memory of ", other.name(),
         ", which the op may still read when it writes\n  to fix: pass another tensor as ", given.name());
  }
}

void Call::refuse_negated() const {
  fail(
      "it writes to a tensor, and one of its tensors is negated when it is read, as .is_neg() says\n  to fix: call "
      ".resolve_neg() on the tensor before the op");
}

void Call::check_writable(const Tensor& x) const {
  for (int64_t i = 0; x.defined() && i < x.dim(); ++i) {
    if (x.size(i) > 1 && x.stride(i) == 0) {
      fail(x.name(), " is written to, but its dimension ", i, " repeats the same elements (stride 0)\n  to fix: pass ",
           x.name(), ".contiguous()");
    }
  }
}

void Call::check_given(const Tensor& given, const Ints& shape, const Ints& strides, DType dtype) const {
  if (!same(given.shape(), shape)) fail(given.name(), " has shape ", given.shape(), ", the result has ", shape);
  if (given.dtype() != dtype) fail(given.name(), " has dtype torch.", given.dtype_name(), ", the result has ", dtype);
  if (given.device() != device_) fail(given.name(), " is on ", given.device(), ", the result is on ", device_);
  bool equal = true;
  for (int64_t i = 0; i < shape.size(); ++i) equal = equal && (shape.at(i) == 1 || given.stride(i) == strides.at(i));
  if (!equal && given.numel() > 0) {
    fail(given.name(), " has strides ", given.strides(), ", the result has ", strides,
         "\n  to fix: allocate it with these strides, for example with torch.empty");
  }
}

Tensor Call::given_for(int output, const Ints& shape, const Ints& strides, DType dtype) const {
  check_given(given(output), shape, strides, dtype);
  return given(output);
}

void Call::check_device(const char* name, const Device& device) const {
  if (device == device_) return;
  if (device.type != device_.type || (device.index >= 0 && device_.index >= 0)) {  // "cuda" and "cpu:0" name no other device
    fail(name, " would be on ", device, ", the op's tensors are on ", device_,
         "\n  to fix: call the op with tensors on that device");
  }
}

Tensor Call::empty(const char* name, int output, const Ints& shape, DType dtype) {
  const Ints strides = contiguous_strides(shape);
  return is_given(output) ? given_for(output, shape, strides, dtype) : allocate(name, shape, strides, dtype);
}

Tensor Call::empty_strided(const char* name, int output, const Ints& shape, const Ints& strides, DType dtype) {
  return is_given(output) ? given_for(output, shape, strides, dtype) : allocate(name, shape, strides, dtype);
}

inline Tensor Call::allocate(const char* name, const Ints& shape, const Ints& strides, DType dtype) {
  if (owned_count_ == kMaxTensors) too_many_tensors();
  AtenTensorHandle handle = nullptr;
  void* data = nullptr;
  const int32_t torch_dtype = dtype_to_torch(dtype);
  const char* refusal = torch_functions.empty_strided(shape.size(), shape.data(), strides.data(), torch_dtype, device_.type,
                                                      device_.index, &handle, &data);
  if (refusal != nullptr) allocation_failed(name, shape, dtype, refusal);
  owned_[owned_count_++] = handle;
  Tensor made(handle, name, shape.size(), data, dtype, torch_dtype, device_);
  if (device_.type == torch_codes.cpu) prefer_huge_pages(made.data(), product(shape) * made.element_size());
  return made;
}

void Call::too_many_tensors() const {
  fail("a call uses more than ", int64_t{kMaxTensors}, " tensors");
}

void Call::disown(AtenTensorHandle handle) {
  int place = owned_count_ - 1;
  while (place >= 0 && owned_[place] != handle) --place;
  if (place >= 0) owned_[place] = owned_[--owned_count_];
}

void Call::allocation_failed(const char* name, const Ints& shape, DType dtype, const char* refusal) const {
  for (int64_t extent : shape) {
    if (extent < 0) fail(name, " would have the negative size ", extent);
  }
  fail("torch could not allocate ", name, " of shape ", shape, " and dtype ", dtype, " on ", device_,
       *refusal != '\0' ? ": " : "", refusal);
}

void Call::launch_with_some(const Variant& variant, const Grid& grid, void* const* slots) const {
  void* params[UINT8_MAX + 1];
  for (int i = 0; i < variant.parameter_count; ++i) params[i] = slots[variant.parameters[i]];
  backend_.launch(*variant.kernel, device_.index, grid, params);
}

void Call::does_not_fit(const char* kernel, const char* name, int64_t value, int64_t bits) const {
  fail(name, " of kernel ", kernel, " is ", value, ", which does not fit its ", bits,
       " bits\n  to fix: annotate the kernel's parameter ", name, ": tl.int64, and build again");
}

void Call::variant_not_built(const LaunchSite& site, int target) const {
  fail("kernel ", site.kernel, " was not built for these arguments and ", backend_.target_name(target),
       "\n  to fix: widen variants at ", op_.place, " and run: ", op_.build);
}

}  // namespace kernelpack
