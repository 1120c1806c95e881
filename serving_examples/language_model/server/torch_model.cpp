#include "torch_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/script.h>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <unordered_map>

namespace lm {

namespace {

using Facts = std::unordered_map<std::string, std::string>;
using Weights = std::unordered_map<std::string, at::Tensor>;

constexpr int kInputs = 8;  // of a package, beside the cache

// A compiled model without weights, which it takes by the names of its Python module.
struct Package {
  Facts facts;
  std::function<void(Weights&)> take;
  std::function<at::Tensor(std::vector<at::Tensor>)> run;  // kInputs, each layer's keys, each layer's values
};

Package load_aoti(const std::string& path) {
  auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path, "model", /*run_single_threaded=*/true);
  return {
      loader->get_metadata(),
      [loader](Weights& weights) { loader->load_constants(weights, false, /*check_full_update=*/true, /*user_managed=*/true); },
      [loader](std::vector<at::Tensor> inputs) { return loader->boxed_run(std::move(inputs)).at(0); }};
}

Package load_torchscript(const std::string& path) {
  Facts facts{{"model", ""}, {"form", ""}, {"page", ""}};
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path, std::nullopt, facts));
  module->eval();
  return {facts,
          [module](Weights& weights) {
            for (auto [name, buffer] : module->named_buffers()) buffer.set_data(weights.at(name));
          },
          [module](std::vector<at::Tensor> inputs) {
            const auto cache = inputs.begin() + kInputs, values = cache + (inputs.end() - cache) / 2;
            torch::jit::Stack stack(inputs.begin(), cache);
            stack.push_back(c10::List<at::Tensor>(std::vector<at::Tensor>(cache, values)));
            stack.push_back(c10::List<at::Tensor>(std::vector<at::Tensor>(values, inputs.end())));
            return module->forward(std::move(stack)).toTensor();
          }};
}

// Makes torch.ops.kernelpack known to this process.
void load_ops(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto load_error = reinterpret_cast<const char* (*)()>(dlsym(library, "kernelpack_load_error"));
  if (load_error == nullptr) throw std::runtime_error(path + " is not the op library of torch.ops.kernelpack");
  if (*load_error() != '\0') throw std::runtime_error(load_error());
}

torch::jit::Stack call(const char* op, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
  return stack;
}

at::Tensor bytes_of(const GgufTensor& tensor) {
  auto* data = const_cast<char*>(tensor.data.data());  // ops only read it
  return at::from_blob(data, {tensor.shape.at(0), static_cast<int64_t>(tensor.data.size()) / tensor.shape.at(0)}, at::kByte);
}

at::Tensor floats_of(const GgufTensor& tensor) {
  if (tensor.format != 0)
    throw std::runtime_error("a norm's weight is of GGUF type " + std::to_string(tensor.format) + ", expected float32");
  return at::from_blob(const_cast<char*>(tensor.data.data()), tensor.shape, at::kFloat);
}

// The rows of a quantised weight in float32, from what repack made of it: see ops/_quantized_weights.py.
at::Tensor dequantized(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& mins, int64_t rows) {
  const int64_t tiles = codes.size(0), blocks = codes.size(1), bits = codes.size(2);
  at::Tensor parts = codes.unsqueeze(3).bitwise_right_shift(at::arange(0, 32, 8, at::kInt).view({4, 1}));
  // [tiles, blocks, bits, 4 bytes, 64] -> [tiles, blocks, halves, bits, 4, 64]
  parts = bits == 4 ? at::stack({parts.bitwise_and(15), parts.bitwise_right_shift(4).bitwise_and(15)}, 2)
                    : parts.to(at::kChar).unsqueeze(2);
  const int64_t groups = scales.size(1), depth = blocks * 32;
  parts = parts.reshape({tiles, groups, depth / groups, 64}).to(at::kFloat);
  if (bits == 4 && mins.size(1) == 0) parts.sub_(8);
  parts.mul_(scales.to(at::kFloat).unsqueeze(2));
  if (mins.size(1) != 0) parts.add_(mins.to(at::kFloat).unsqueeze(2));
  return parts.view({tiles, depth, 64}).transpose(1, 2).reshape({tiles * 64, depth}).slice(0, 0, rows).contiguous();
}

// Collects a model's weights by the names that model.py has.
class Collector {
 public:
  Collector(const Gguf& file, bool dense) : file_(file), dense_(dense) {}

  // A product's weight, whose parts lie one below the other. Returns what repack made of it.
  std::vector<at::Tensor> product(const std::string& name, const std::vector<std::string>& parts) {
    std::vector<at::Tensor> rows;
    const int format = file_.tensor(parts[0]).format;
    for (const std::string& part : parts) {
      const GgufTensor& tensor = file_.tensor(part);
      if (tensor.format != format || tensor.shape.size() != 2)
        throw std::runtime_error(part + " is no matrix of " + parts[0] + "'s type, which it is multiplied with at once");
      rows.push_back(bytes_of(tensor));
    }
    const at::Tensor all = rows.size() == 1 ? rows[0] : at::cat(rows);
    torch::jit::Stack packed = call("kernelpack::repack", {all, format, at::IValue(), at::IValue()});
    std::vector<at::Tensor> given;
    for (const at::IValue& one : packed) given.push_back(one.toTensor());
    if (dense_) {
      weights[name + ".weight"] = dequantized(given[0], given[1], given[2], all.size(0)).to(at::kBFloat16);
    } else {
      weights[name + ".codes"] = given[0], weights[name + ".scales"] = given[1], weights[name + ".mins"] = given[2];
    }
    given.push_back(all);
    return given;
  }
  void norm(const std::string& name, const std::string& part, at::ScalarType dtype) {
    weights[name + ".weight"] = floats_of(file_.tensor(part)).to(dtype);
  }

  Weights weights;

 private:
  const Gguf& file_;
  bool dense_;
};

// What the package must say of its model: see export.py.
std::string description(const Gguf& file) {
  if (const auto architecture = file.text("general.architecture"); architecture != "llama")
    throw std::runtime_error("the GGUF file's architecture is " + std::string(architecture) + ", expected llama");
  std::string text = "llama";
  for (const char* name : {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
                           "feed_forward_length", "context_length"})
    text += " " + std::to_string(file.integer("llama." + std::string(name)));
  char eps[32];
  std::snprintf(eps, sizeof eps, " %.6g", file.number("llama.attention.layer_norm_rms_epsilon"));
  return text + eps;
}

// The cosines of each position's pairs, then their sines.
at::Tensor angles(int64_t positions, int64_t size, double base) {
  const at::Tensor pairs = at::arange(0, size, 2, at::kDouble) / size;
  const at::Tensor turns = at::arange(positions).unsqueeze(1) * at::pow(base, -pairs);
  return at::cat({turns.cos(), turns.sin()}, -1).to(at::kFloat);
}

class TorchModel : public Model {
 public:
  TorchModel(Package package, const Gguf& file, int pages) : package_(std::move(package)) {
    const std::string own = description(file);
    if (const std::string& made = package_.facts["model"]; made != own)
      throw std::runtime_error("the package was made for the model " + made + ", the GGUF file has " + own +
                               "\n  to fix: save a package for it with serving_examples/language_model/export.py");
    const std::string& form = package_.facts["form"];
    const auto dtype = form == "float32" || form == "int8" ? at::kFloat : at::kBFloat16;
    const auto integer = [&](const char* name) { return file.integer("llama." + std::string(name)); };
    const int64_t layers = integer("block_count"), heads = integer("attention.head_count");
    const int64_t size = integer("embedding_length") / heads;
    Collector collector(file, form == "dense");
    for (int64_t i = 0; i < layers; ++i) {
      const std::string to = "layers." + std::to_string(i) + ".", from = "blk." + std::to_string(i) + ".";
      collector.product(to + "query_key_value", {from + "attn_q.weight", from + "attn_k.weight", from + "attn_v.weight"});
      collector.product(to + "output", {from + "attn_output.weight"});
      collector.product(to + "gate_up", {from + "ffn_gate.weight", from + "ffn_up.weight"});
      collector.product(to + "down", {from + "ffn_down.weight"});
      collector.norm(to + "attention_norm", from + "attn_norm.weight", dtype);
      collector.norm(to + "feed_norm", from + "ffn_norm.weight", dtype);
    }
    collector.norm("norm", "output_norm.weight", dtype);
    const std::vector<at::Tensor> words = collector.product("head", {"token_embd.weight"});
    const int64_t vocabulary = words[3].size(0);
    collector.weights["words"] = dequantized(words[0], words[1], words[2], vocabulary).to(dtype);
    const int64_t positions = integer("context_length");
    collector.weights["angles"] = angles(positions, size, file.number("llama.rope.freq_base"));
    weights_ = std::move(collector.weights);
    package_.take(weights_);

    const int page = std::stoi(package_.facts["page"]);
    if (pages == 0) pages = static_cast<int>(2 * positions / page);
    for (int64_t i = 0; i < 2 * layers; ++i)
      cache_.push_back(at::zeros({pages, page, integer("attention.head_count_kv"), size}, dtype));
    sizes_ = {page, pages, static_cast<int>(positions), static_cast<int>(vocabulary)};
  }

  Sizes sizes() const override { return sizes_; }

  std::vector<Token> step(const Batch& batch) override {
    const c10::InferenceMode guard;
    size_t width = 1, longest = 0;
    for (const auto* own : batch.pages) width = std::max(width, own->size());
    for (size_t i = 0; i < batch.lengths.size(); ++i)
      longest = std::max<size_t>(longest, batch.starts[i + 1] - batch.starts[i]);
    const auto sequences = static_cast<int64_t>(batch.lengths.size());
    const at::Tensor table = at::zeros({sequences, static_cast<int64_t>(width)}, at::kInt);
    for (int64_t i = 0; i < sequences; ++i)
      std::copy(batch.pages[i]->begin(), batch.pages[i]->end(), table.mutable_data_ptr<int32_t>() + i * width);
    std::vector<int64_t> rows;
    for (const Choice& choice : batch.choices) rows.push_back(batch.starts[choice.sequence + 1] - 1);
    if (rows.empty()) rows.push_back(0);  // the package gives logits of one row at least
    std::vector<at::Tensor> inputs = {at::tensor(batch.tokens),  at::tensor(batch.positions),
                                      at::tensor(batch.slots),   at::tensor(batch.starts),
                                      at::tensor(batch.lengths), table,
                                      at::tensor(rows),          at::empty({static_cast<int64_t>(longest)}, at::kChar)};
    inputs.insert(inputs.end(), cache_.begin(), cache_.end());
    return choose(package_.run(std::move(inputs)), batch.choices);
  }

 private:
  // A setting of all rows, None where all have the neutral one, which costs nothing.
  template <typename T, typename Get>
  static at::IValue setting(const std::vector<Choice>& choices, T neutral, const Get& get) {
    std::vector<T> values;
    for (const Choice& choice : choices) values.push_back(static_cast<T>(get(choice)));
    if (std::all_of(values.begin(), values.end(), [&](T value) { return value == neutral; })) return {};
    return at::tensor(values);
  }

  std::vector<Token> choose(const at::Tensor& logits, const std::vector<Choice>& choices) const {
    if (choices.empty()) return {};
    const auto of = [&](auto neutral, auto member) {
      return setting(choices, neutral, [&](const Choice& choice) { return choice.sampling->*member; });
    };
    const at::IValue repetition = of(1.0f, &Sampling::repetition_penalty), presence = of(0.0f, &Sampling::presence_penalty),
                     frequency = of(0.0f, &Sampling::frequency_penalty);
    at::IValue bias, asked, said;
    if (std::any_of(choices.begin(), choices.end(), [](const Choice& choice) { return !choice.sampling->bias.empty(); })) {
      const at::Tensor added = at::zeros_like(logits, at::kFloat);
      for (size_t i = 0; i < choices.size(); ++i)
        for (const auto& [token, value] : choices[i].sampling->bias) added[i][token] = value;
      bias = added;
    }
    if (!repetition.isNone() || !presence.isNone() || !frequency.isNone()) {
      const at::Tensor prompt = at::zeros_like(logits, at::kBool), output = at::zeros_like(logits, at::kInt);
      for (size_t i = 0; i < choices.size(); ++i)
        for (size_t j = 0; j < choices[i].tokens->size(); ++j) {
          const int64_t place = i * logits.size(1) + (*choices[i].tokens)[j];
          if (j < static_cast<size_t>(choices[i].prompt))
            prompt.mutable_data_ptr<bool>()[place] = true;
          else
            ++output.mutable_data_ptr<int32_t>()[place];
        }
      asked = prompt, said = output;
    }
    const bool drawn =
        std::any_of(choices.begin(), choices.end(), [](const Choice& one) { return one.sampling->temperature > 0; });
    const bool logged = std::any_of(choices.begin(), choices.end(), [](const Choice& one) { return one.alternatives >= 0; });
    const auto seeds = [](const Choice& choice) { return static_cast<int64_t>(choice.sampling->seed); };
    const auto places = [](const Choice& choice) { return static_cast<int64_t>(choice.tokens->size()); };
    const torch::jit::Stack result = call(
        "kernelpack::sample",
        {logits, drawn ? at::IValue(setting<int64_t>(choices, -1, seeds)) : at::IValue(), setting<int64_t>(choices, -1, places),
         of(1.0f, &Sampling::temperature), setting<int64_t>(choices, 0, [](const Choice& one) { return one.sampling->top_k; }),
         of(1.0f, &Sampling::top_p), of(0.0f, &Sampling::min_p), bias, asked, said, repetition, presence, frequency, logged});
    const at::Tensor tokens = result[0].toTensor().cpu(), log_probabilities = result[1].toTensor().cpu();
    std::vector<Token> chosen(choices.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      chosen[i].id = static_cast<int>(tokens.const_data_ptr<int64_t>()[i]);
      if (choices[i].alternatives < 0) continue;
      chosen[i].log_probability = log_probabilities.const_data_ptr<float>()[i];
      const auto [values, ids] = logits[i].log_softmax(-1, at::kFloat).cpu().topk(choices[i].alternatives);
      for (int j = 0; j < choices[i].alternatives; ++j)
        chosen[i].alternatives.push_back(
            {static_cast<int>(ids.const_data_ptr<int64_t>()[j]), values.const_data_ptr<float>()[j]});
    }
    return chosen;
  }

  Package package_;
  Weights weights_;
  std::vector<at::Tensor> cache_;  // each layer's keys, then each layer's values
  Sizes sizes_;
};

}  // namespace

std::unique_ptr<Model> load_model(const ModelFiles& files, const Gguf& file, int pages, int threads) {
  const c10::InferenceMode guard;
  at::set_num_threads(threads);
  load_ops(files.library);
  const bool script = files.package.ends_with(".pt");
  return std::make_unique<TorchModel>(script ? load_torchscript(files.package) : load_aoti(files.package), file, pages);
}

}  // namespace lm
