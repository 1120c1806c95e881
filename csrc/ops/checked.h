// Launches of kernels that check their accesses (kernelpack build --checked): where each tensor's storage lies, and what is
// said of an access outside of it.
#pragma once

#include <string>
#include <vector>

#include "ops/call.h"
#include "ops/shim.h"

namespace kernelpack {

// Where the storage of a tensor lies: addresses. Nowhere for one that is absent.
struct Storage {
  int64_t begin = 0;
  int64_t end = 0;
};
inline Storage storage_of(const Tensor& x) {
  if (!x.defined()) return {};
  int64_t offset = 0, bytes = 0;
  shim(aoti_torch_get_storage_offset(x.handle(), &offset), "asking where a tensor's storage begins");
  shim(aoti_torch_get_storage_size(x.handle(), &bytes), "asking how large a tensor's storage is");
  const auto begin = reinterpret_cast<int64_t>(x.data()) - offset * x.element_size();
  return {begin, begin + bytes};
}

// Returns what is said of an access outside of a tensor that a parameter points into.
inline std::string describe(const AccessOutside& outside, const Tensor& x) {
  const std::string access = outside.what();
  if (!x.defined())
    return access + ", which is None\n  to fix: ask for it in the host function, as in kp.check(x is not None, ...)";
  const Storage storage = storage_of(x);
  const int64_t size = x.element_size();
  const auto first = reinterpret_cast<int64_t>(x.data());
  const int64_t element = floor_div(static_cast<int64_t>(outside.address) - first, size);
  const std::string held = storage.end == storage.begin ? std::string("no elements")
                                                        : "elements " + std::to_string((storage.begin - first) / size) +
                                                              " to " + std::to_string((storage.end - first) / size - 1);
  return access + ": element " + std::to_string(element) + " of " + x.name() + " is outside of its storage, which holds " +
         held + " (shape " + text(x.shape()) + ", strides " + text(x.strides()) +
         ")\n  to fix: check the argument in the host function by kp.check, or mask the access";
}

// The values of a launch's run-time parameters, followed by where the storages of the tensors among them begin and end.
template <int count, int tensors>
class CheckedSlots : public Slots<count + 2 * tensors> {
 public:
  // Says that a slot holds the address of a tensor.
  void hold(int slot, const Tensor& x) {
    const Storage storage = storage_of(x);
    const int place = count + 2 * static_cast<int>(held_.size());
    this->set(place, storage.begin);
    this->set(place + 1, storage.end);
    held_.push_back({slot, x});
  }
  // Returns the tensor whose address a slot holds.
  const Tensor& at(int slot) const {
    size_t i = 0;
    while (held_[i].slot != slot) ++i;
    return held_[i].tensor;
  }

 private:
  struct Held {
    int slot;
    Tensor tensor;
  };
  std::vector<Held> held_;
};

// Launches as `call.launch`. Throws Error for an access outside of a tensor.
template <int count, int tensors>
void launch_checked(const Call& call, const Variant& variant, const Grid& grid, const CheckedSlots<count, tensors>& slots) {
  try {
    call.launch(variant, grid, slots.addresses());
  } catch (const AccessOutside& outside) {
    const auto through = static_cast<int>(outside.parameter);
    call.fail(describe(outside, slots.at(variant.parameters == nullptr ? through : variant.parameters[through])));
  }
}

}  // namespace kernelpack
