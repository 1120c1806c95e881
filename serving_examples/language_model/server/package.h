// A model's program, saved by serving_examples/language_model/export.py without weights, on torch.ops.kernelpack.
#pragma once

#include <ATen/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lm {

using Weights = std::unordered_map<std::string, at::Tensor>;

struct Package {
  std::unordered_map<std::string, std::string> facts;  // that export.py wrote
  std::function<void(Weights&)> take;                  // takes weights, which live on, by the names of its Python module
  // Maps tokens, positions, slots, starts, lengths, table, rows, longest, each layer's keys, each layer's values, as model.py
  // has them, to logits.
  std::function<at::Tensor(std::vector<at::Tensor>)> run;
};

constexpr int kInputs = 8;  // of a package, before the cache

// Loads .pt2, an AOTInductor package, or .pt, TorchScript. Throws c10::Error for what is neither.
Package load_package(const std::string& path);

// Makes torch.ops.kernelpack known to this process. Throws std::runtime_error.
void load_ops(const std::string& path);

torch::jit::Stack call(const char* op, torch::jit::Stack arguments);

}  // namespace lm
