// KERNELPACK_TRACE=file: which calls a running model makes, counted: op, dtypes, shapes, what held of them, and the variants
// that ran. No data. `kernelpack trace file` reads it. KERNELPACK_LOG=launch: the same, told on stderr as it happens.
#pragma once

#include <cstdint>
#include <string>

#include "ops/tensor.h"

namespace kernelpack {

struct LaunchSite;
struct Variant;

namespace trace {

// Whether calls are recorded or told. Says on stderr, once, where KERNELPACK_LOG asks for something else.
bool is_on();

// A call of an op with these tensors begins on this thread; the one before it is complete.
[[gnu::cold]] void begin(const char* op, std::initializer_list<std::reference_wrapper<const Tensor>> tensors);
// The call launches a variant, or finds none. Bit i of `held` stands for the launch's assumption i.
[[gnu::cold]] void launch(const LaunchSite& site, const char* target, uint64_t held, const Variant& variant);
// The call is refused.
[[gnu::cold]] void refuse(const std::string& why);

}  // namespace trace
}  // namespace kernelpack
