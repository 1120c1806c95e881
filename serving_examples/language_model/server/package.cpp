// Packages by AOTInductor and by TorchScript.
#include "package.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <memory>
#include <stdexcept>

namespace lm {

namespace {

Package load_aoti(const std::string& path) {
  // several threads would each run a copy, which no graph can capture
  auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path, "model", /*run_single_threaded=*/true);
  return {
      loader->get_metadata(),
      [loader](Weights& weights) { loader->load_constants(weights, false, /*check_full_update=*/true, /*user_managed=*/true); },
      [loader](std::vector<at::Tensor> inputs) { return loader->boxed_run(std::move(inputs)).at(0); }};
}

Package load_torchscript(const std::string& path) {
  std::unordered_map<std::string, std::string> facts{{"model", ""}, {"form", ""}, {"page", ""}, {"piece", ""}, {"device", ""}};
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path, std::nullopt, facts));
  return {facts,
          [module](Weights& weights) {
            for (auto [name, buffer] : module->named_buffers()) buffer.set_data(weights.at(name));
          },
          [module](std::vector<at::Tensor> inputs) {
            const auto keys = inputs.begin() + kInputs, values = keys + (inputs.end() - keys) / 2;
            torch::jit::Stack stack(inputs.begin(), keys);
            stack.emplace_back(c10::List<at::Tensor>(std::vector<at::Tensor>(keys, values)));
            stack.emplace_back(c10::List<at::Tensor>(std::vector<at::Tensor>(values, inputs.end())));
            return module->forward(std::move(stack)).toTensor();
          }};
}

}  // namespace

Package load_package(const std::string& path) {
  return path.ends_with(".pt") ? load_torchscript(path) : load_aoti(path);
}

void load_ops(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto load_error = reinterpret_cast<const char* (*)()>(dlsym(library, "kernelpack_load_error"));
  if (load_error == nullptr) throw std::runtime_error(path + " is not the op library of torch.ops.kernelpack");
  if (*load_error() != '\0') throw std::runtime_error(load_error());
}

torch::jit::Stack call(const char* op, torch::jit::Stack arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(arguments);
  return arguments;
}

}  // namespace lm
