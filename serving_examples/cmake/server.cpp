// Calls an op by its name. Being linked to demo::ops is all that the program needs for it.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdio>

int main() {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("demo::saxpy", "");
  const at::Tensor x = at::arange(5000, at::kFloat);
  at::Tensor y = at::ones({5000});
  torch::jit::Stack stack{x, y, 2.5};
  op.callBoxed(stack);
  const bool right = at::equal(y, 2.5 * x + 1);
  std::printf("y = 2.5 x + y of %d elements is %s\n", 5000, right ? "right" : "wrong");
  return right ? 0 : 1;
}
