// A model of torch.ops.kernelpack: a package that serving_examples/language_model/export.py saved, with the weights of a GGUF
// file.
#pragma once

#include <memory>
#include <string>

#include "gguf.h"
#include "model.h"

namespace lm {

struct ModelFiles {
  std::string library;  // of the ops
  std::string package;  // .pt2: AOTInductor, .pt: TorchScript
};

// Loads ops, package and weights; `pages`: of the cache, as many as the longest sequence needs twice where it is 0. Throws
// std::runtime_error where a file is missing or none of its kind, or where the package was made for another model.
std::unique_ptr<Model> load_model(const ModelFiles& files, const Gguf& file, int pages, int threads);

}  // namespace lm
