// The choice of tokens by logits.
#pragma once

#include <ATen/core/Tensor.h>

#include "model.h"

namespace lm {

// A token for each row of logits [choices, vocabulary], on their device.
std::vector<Token> choose(const at::Tensor& logits, const std::vector<Choice>& choices);

}  // namespace lm
