// The choice of tokens by logits, with torch.ops.kernelpack.sample.
#include "choose.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "package.h"

namespace lm {

namespace {

// Whether a batch asks for something, and the tensor of it: what nobody asks for is None, and costs nothing.
at::IValue if_any(bool asked, const at::Tensor& values, at::Device device) {
  return asked ? at::IValue(values.to(device)) : at::IValue();
}

template <typename Get>
auto each(const std::vector<Choice>& choices, const Get& get) {
  std::vector<decltype(get(choices[0]))> values;
  for (const Choice& choice : choices) values.push_back(get(choice));
  return values;
}

}  // namespace

std::vector<Token> choose(const at::Tensor& logits, const std::vector<Choice>& choices) {
  if (choices.empty()) return {};
  const at::Device device = logits.device();
  const auto any = [&](const auto& is_so) { return std::any_of(choices.begin(), choices.end(), is_so); };
  const auto setting = [&](auto neutral, auto member) {
    const auto values = each(choices, [&](const Choice& choice) { return choice.sampling->*member; });
    const bool asked = std::any_of(values.begin(), values.end(), [&](auto value) { return value != neutral; });
    return if_any(asked, at::tensor(values), device);
  };
  const at::IValue repetition = setting(1.0f, &Sampling::repetition_penalty),
                   presence = setting(0.0f, &Sampling::presence_penalty),
                   frequency = setting(0.0f, &Sampling::frequency_penalty);
  at::IValue bias, prompt, output;
  if (any([](const Choice& choice) { return !choice.sampling->bias.empty(); })) {
    const at::Tensor added = at::zeros(logits.sizes(), at::kFloat);
    for (size_t i = 0; i < choices.size(); ++i)
      for (const auto& [token, value] : choices[i].sampling->bias)
        added.mutable_data_ptr<float>()[i * added.size(1) + token] = value;
    bias = added.to(device);
  }
  if (!repetition.isNone() || !presence.isNone() || !frequency.isNone()) {
    const at::Tensor asked = at::zeros(logits.sizes(), at::kBool), said = at::zeros(logits.sizes(), at::kInt);
    for (size_t i = 0; i < choices.size(); ++i) {
      const std::vector<int>& tokens = *choices[i].tokens;
      const int64_t row = i * logits.size(1);
      for (int j = 0; j < choices[i].prompt; ++j) asked.mutable_data_ptr<bool>()[row + tokens[j]] = true;
      for (size_t j = choices[i].prompt; j < tokens.size(); ++j) ++said.mutable_data_ptr<int32_t>()[row + tokens[j]];
    }
    prompt = asked.to(device), output = said.to(device);
  }
  const bool drawn = any([](const Choice& choice) { return choice.sampling->temperature > 0; });
  const at::Tensor seeds =
      at::tensor(each(choices, [](const Choice& one) { return static_cast<int64_t>(one.sampling->seed); }));
  const at::Tensor places =
      at::tensor(each(choices, [](const Choice& one) { return static_cast<int64_t>(one.tokens->size()); }));
  const at::Tensor most =
      at::tensor(each(choices, [](const Choice& one) { return static_cast<int64_t>(one.sampling->top_k); }));
  const torch::jit::Stack result =
      call("kernelpack::sample",
           {logits, if_any(drawn, seeds, device), if_any(drawn, places, device), setting(1.0f, &Sampling::temperature),
            if_any(drawn, most, device), setting(1.0f, &Sampling::top_p), setting(0.0f, &Sampling::min_p), bias, prompt, output,
            repetition, presence, frequency, any([](const Choice& choice) { return choice.alternatives >= 0; })});
  const at::Tensor tokens = result[0].toTensor().cpu(), logged = result[1].toTensor().cpu();
  int wanted = 0;
  for (const Choice& choice : choices) wanted = std::max(wanted, choice.alternatives);
  std::tuple<at::Tensor, at::Tensor> likeliest;
  if (wanted > 0) likeliest = logits.log_softmax(-1, at::kFloat).topk(wanted);
  const at::Tensor values = wanted > 0 ? std::get<0>(likeliest).cpu() : at::Tensor(),
                   ids = wanted > 0 ? std::get<1>(likeliest).cpu() : at::Tensor();
  std::vector<Token> chosen(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    chosen[i].id = static_cast<int>(tokens.const_data_ptr<int64_t>()[i]);
    if (choices[i].alternatives >= 0) chosen[i].log_probability = logged.const_data_ptr<float>()[i];
    for (int j = 0; j < choices[i].alternatives; ++j) {
      const int64_t place = static_cast<int64_t>(i) * wanted + j;
      chosen[i].alternatives.push_back(
          {static_cast<int>(ids.const_data_ptr<int64_t>()[place]), values.const_data_ptr<float>()[place]});
    }
  }
  return chosen;
}

}  // namespace lm
