// A Llama's weights, from GGUF's tensors to those of model.py.
#include "weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace lm {

namespace {

std::string key(const char* name) {
  return "llama." + std::string(name);
}

[[noreturn]] void refuse(const std::string& name, const GgufTensor& tensor, const std::string& expected) {
  throw std::runtime_error(name + " is of GGUF type " + std::to_string(tensor.format) + ", expected " + expected);
}

// A weight of a file, in its memory: bytes, a row of blocks after another, where it is quantised, else [rows, columns].
at::Tensor stored(const GgufTensor& tensor) {
  auto* data = const_cast<char*>(tensor.data.data());  // nothing writes there
  if (tensor.format == 0) return at::from_blob(data, tensor.shape, at::kFloat);
  if (tensor.format == 1) return at::from_blob(data, tensor.shape, at::kHalf);
  if (tensor.format == 30) return at::from_blob(data, tensor.shape, at::kBFloat16);
  const int64_t rows = tensor.shape.at(0);
  return at::from_blob(data, {rows, static_cast<int64_t>(tensor.data.size()) / rows}, at::kByte);
}

// Columns of tiles in float32 [64 tiles, depth], of what repack made of them: ops/_quantized_weights.py says how they lie.
at::Tensor dequantized(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& mins) {
  const int64_t tiles = codes.size(0), depth = codes.size(1) * 32, bits = codes.size(2), groups = scales.size(1);
  at::Tensor parts = codes.unsqueeze(3).bitwise_right_shift(at::arange(0, 32, 8, at::kInt).view({4, 1})).to(at::kChar);
  if (bits == 4) parts = at::stack({parts.bitwise_and(15), parts.bitwise_right_shift(4).bitwise_and(15)}, 2);
  parts = parts.reshape({tiles, groups, depth / groups, 64}).to(at::kFloat);
  if (bits == 4 && mins.size(1) == 0) parts.sub_(8);
  parts.mul_(scales.to(at::kFloat).unsqueeze(2));
  if (mins.size(1) != 0) parts.add_(mins.to(at::kFloat).unsqueeze(2));
  return parts.view({tiles, depth, 64}).transpose(1, 2).reshape({tiles * 64, depth});
}

class Collector {
 public:
  Collector(const Gguf& file, const std::string& form, at::Device device)
      : file_(file), dense_(form == "dense"), dtype_(dtype_of(form)), device_(device) {}

  // The weight of a product, whose parts lie one below the other.
  void product(const std::string& name, const std::vector<std::string>& parts) {
    const at::Tensor all = joined(parts);
    if (all.scalar_type() != at::kByte && !dense_) refuse(parts[0], file_.tensor(parts[0]), "a quantised one");
    if (dense_) return put(name + ".weight", floats(all, parts[0]), at::kBFloat16);
    const torch::jit::Stack packed = repacked(all, parts[0]);
    const char* const names[] = {".codes", ".scales", ".mins"};
    for (int i = 0; i < 3; ++i) weights[name + names[i]] = packed[i].toTensor().to(device_);
  }
  void norm(const std::string& name, const std::string& part) {
    const GgufTensor& tensor = file_.tensor(part);
    if (tensor.format != 0) refuse(part, tensor, "float32");
    put(name + ".weight", stored(tensor), dtype_);
  }
  void words(const std::string& name, const std::string& part) { put(name, floats(joined({part}), part), dtype_); }
  void put(const std::string& name, const at::Tensor& values, at::ScalarType dtype) {
    weights[name] = values.to(device_).to(dtype).contiguous();
  }

  Weights weights;

 private:
  at::Tensor joined(const std::vector<std::string>& parts) const {
    std::vector<at::Tensor> all;
    for (const std::string& part : parts) {
      const GgufTensor& tensor = file_.tensor(part);
      if (tensor.format != file_.tensor(parts[0]).format) refuse(part, tensor, "that of " + parts[0]);
      if (tensor.shape.size() != 2 || tensor.shape[0] == 0) throw std::runtime_error(part + " is no matrix with rows");
      all.push_back(stored(tensor));
    }
    return all.size() == 1 ? all[0] : at::cat(all);
  }
  torch::jit::Stack repacked(const at::Tensor& all, const std::string& part) const {
    return call("kernelpack::repack", {all, file_.tensor(part).format, at::IValue(), at::IValue()});
  }
  at::Tensor floats(const at::Tensor& all, const std::string& part) const {
    if (all.scalar_type() != at::kByte) return all;
    const torch::jit::Stack packed = repacked(all, part);
    const at::Tensor codes = packed[0].toTensor(), scales = packed[1].toTensor(), mins = packed[2].toTensor();
    const int64_t tiles = codes.size(0), some = 16;  // at a time, whose memory is used again for the next ones
    const at::Tensor rows = at::empty({tiles * 64, codes.size(1) * 32}, at::kFloat);
    for (int64_t i = 0; i < tiles; i += some) {
      const int64_t end = std::min(i + some, tiles);
      rows.slice(0, i * 64, end * 64)
          .copy_(dequantized(codes.slice(0, i, end), scales.slice(0, i, end), mins.slice(0, i, end)));
    }
    return rows.slice(0, 0, all.size(0));
  }

  const Gguf& file_;
  const bool dense_;
  const at::ScalarType dtype_;
  const at::Device device_;
};

// The cosines of each position's pairs, then their sines.
at::Tensor angles(int64_t positions, int64_t size, double base) {
  const at::Tensor pairs = at::arange(0, size, 2, at::kDouble) / size;
  const at::Tensor turns = at::arange(positions).unsqueeze(1) * at::pow(base, -pairs);
  return at::cat({turns.cos(), turns.sin()}, -1).to(at::kFloat);
}

}  // namespace

std::string description(const Gguf& file) {
  if (const auto architecture = file.text("general.architecture"); architecture != "llama")
    throw std::runtime_error("the GGUF file's architecture is " + std::string(architecture) + ", expected llama");
  if (file.has(key("rope.scaling.type")) || file.tensors().contains("rope_freqs.weight"))
    throw std::runtime_error("the GGUF file scales its rope, which is not served");
  std::string text = "llama";
  for (const char* name : {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
                           "feed_forward_length", "context_length"})
    text += " " + std::to_string(file.integer(key(name)));
  char eps[32];
  std::snprintf(eps, sizeof eps, " %.6g", file.number(key("attention.layer_norm_rms_epsilon")));
  return text + eps;
}

Weights weights_of(const Gguf& file, const std::string& form, at::Device device) {
  Collector collector(file, form, device);
  for (int64_t i = 0; i < file.integer(key("block_count")); ++i) {
    const std::string to = "layers." + std::to_string(i) + ".", from = "blk." + std::to_string(i) + ".";
    const auto parts = [&](std::vector<std::string> names) {
      for (std::string& name : names) name = from + name + ".weight";
      return names;
    };
    collector.product(to + "query_key_value", parts({"attn_q", "attn_k", "attn_v"}));
    collector.product(to + "output", parts({"attn_output"}));
    collector.product(to + "gate_up", parts({"ffn_gate", "ffn_up"}));
    collector.product(to + "down", parts({"ffn_down"}));
    collector.norm(to + "attention_norm", from + "attn_norm.weight");
    collector.norm(to + "feed_norm", from + "ffn_norm.weight");
  }
  collector.norm("norm", "output_norm.weight");
  collector.product("head", {file.tensors().contains("output.weight") ? "output.weight" : "token_embd.weight"});
  collector.words("words", "token_embd.weight");
  const int64_t size = file.integer(key("embedding_length")) / file.integer(key("attention.head_count"));
  collector.put("angles", angles(file.integer(key("context_length")), size, file.number(key("rope.freq_base"))), at::kFloat);
  return std::move(collector.weights);
}

}  // namespace lm
