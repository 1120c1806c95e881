// A model whose next token is a function of all tokens before it, which it reads out of pages as the ops do: what the engine
// writes into the wrong page, or takes from it too early, changes a text. So does how tokens were computed, where
// Sizes::piece says that it matters.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "model.h"

struct FakeModel : lm::Model {
  FakeModel(lm::Sizes sizes, std::chrono::microseconds delay = {})
      : own(sizes), delay(delay), cache(sizes.page * sizes.pages, -1) {}

  // The token after a text. One that begins with `kNaN` has none, and a call with `kThrow` in it fails.
  static constexpr int kNaN = 7, kThrow = 8;
  int after(const std::vector<int>& tokens) const {
    if (is_poisoned || tokens.at(0) == kNaN) return -1;
    uint64_t state = 1469598103934665603u;
    for (const int token : tokens) state = (state ^ static_cast<uint64_t>(token)) * 1099511628211u;
    return 100 + static_cast<int>((state >> 20) % static_cast<uint64_t>(own.vocabulary - 100));
  }
  // What the cache has of a token that was computed in a piece of so many.
  int computed(int token, int piece) const { return piece < own.piece ? token + own.vocabulary : token; }

  lm::Sizes sizes() const override { return own; }

  std::vector<lm::Token> step(const lm::Batch& batch) override {
    std::this_thread::sleep_for(delay);
    ++calls;
    for (const int64_t token : batch.tokens)
      if (token == kThrow) throw std::runtime_error("the model failed");
    for (size_t i = 0; i < batch.lengths.size(); ++i)
      for (int j = batch.starts[i]; j < batch.starts[i + 1]; ++j)
        cache.at(batch.slots[j]) = computed(static_cast<int>(batch.tokens[j]), batch.starts[i + 1] - batch.starts[i]);
    std::vector<lm::Token> chosen;
    for (const lm::Choice& choice : batch.choices) {
      std::vector<int> seen;
      for (int i = 0; i < batch.lengths[choice.sequence]; ++i)
        seen.push_back(cache.at(batch.pages[choice.sequence]->at(i / own.page) * own.page + i % own.page));
      lm::Token token{after(seen), -0.5f, {}};
      for (int i = 0; i < choice.alternatives; ++i) token.alternatives.push_back({(token.id + i) % own.vocabulary, -0.5f - i});
      chosen.push_back(token);
    }
    return chosen;
  }

  const lm::Sizes own;
  const std::chrono::microseconds delay;
  std::vector<int> cache;
  std::atomic<int> calls = 0;
  std::atomic<bool> is_poisoned = false;  // no text has a next token
};
