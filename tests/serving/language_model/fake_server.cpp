// Stands in for torch_model.cpp: main.cpp serves a model that computes nothing. Each setting of a request changes its tokens.
#include <cstdlib>
#include <cstring>

#include "fake_model.h"
#include "torch_model.h"

namespace {

// Tokens of FakeModel; where a temperature is given, others for other settings.
struct FakeSampler : FakeModel {
  using FakeModel::FakeModel;

  std::vector<lm::Token> step(const lm::Batch& batch) override {
    std::vector<lm::Token> chosen = FakeModel::step(batch);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const lm::Sampling& by = *batch.choices[i].sampling;
      if (by.temperature == 0 || chosen[i].id < 0) continue;
      std::vector<float> settings = {by.temperature,
                                     by.top_p,
                                     by.min_p,
                                     float(by.top_k),
                                     by.presence_penalty,
                                     by.frequency_penalty,
                                     by.repetition_penalty,
                                     float(by.seed % 65536)};
      for (const auto& [token, bias] : by.bias) settings.insert(settings.end(), {float(token), bias});
      uint32_t state = static_cast<uint32_t>(chosen[i].id);
      for (const float setting : settings) {
        uint32_t bits;
        std::memcpy(&bits, &setting, sizeof bits);
        state = (state ^ bits) * 16777619u;
      }
      chosen[i].id = 100 + static_cast<int>((state >> 8) % (own.vocabulary - 100));
    }
    return chosen;
  }
};

}  // namespace

namespace lm {

// The package's name is how many microseconds a call takes.
std::unique_ptr<Model> load_model(const ModelFiles& files, const Gguf& file, int pages, int) {
  const Sizes sizes{16, pages == 0 ? 256 : pages, 2048, static_cast<int>(file.texts("tokenizer.ggml.tokens").size())};
  return std::make_unique<FakeSampler>(sizes, std::chrono::microseconds(std::atoi(files.package.c_str())));
}

}  // namespace lm
