// Times calls of ops as a C++ program makes them: by a typed handle of torch's dispatcher.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <chrono>

namespace {

// Returns the nanoseconds of one call of `name(Tensor, float) -> Tensor`, without autograd, as servers call.
double typed(const at::Tensor& x, double factor, c10::string_view name, int64_t calls) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow(std::string(name).c_str(), "")
                      .typed<at::Tensor(const at::Tensor&, double)>();
  const c10::InferenceMode without_autograd;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) op.call(x, factor);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / double(calls);
}

}  // namespace

TORCH_LIBRARY(launch_calls, m) {
  m.def("typed(Tensor x, float factor, str name, int calls) -> float", typed);
}
