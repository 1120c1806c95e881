// The model: a package with the weights of a GGUF file, a cache, and the choice of tokens.
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

// Loads ops, package and weights, on the device that the package was saved for; `pages`: of the cache, for two of the longest
// sequences where it is 0. Throws std::exception where a file is missing or none of its kind, or where the package was made for
// another model.
std::unique_ptr<Model> load_model(const ModelFiles& files, const Gguf& file, int pages, int threads);

}  // namespace lm
