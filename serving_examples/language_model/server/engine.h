// The engine: one thread that answers many requests at once (continuous batching). Prompts are read in chunks beside sequences
// that already write; sequences whose tokens begin alike share pages of the cache; where pages run out, the youngest sequence
// gives its own back and is read again later.
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "metrics.h"
#include "model.h"
#include "request.h"
#include "tokenizer.h"

namespace lm {

struct EngineLimits {
  int queue = 256;         // requests that wait
  int sequences = 64;      // that are answered at once
  int batch_tokens = 256;  // of one call
};

// The queue is full, or the engine ends: the request was not taken.
struct Busy : std::runtime_error {
  using runtime_error::runtime_error;
};

class Engine {
 public:
  Engine(Model& model, const Tokenizer& tokenizer, EngineLimits limits, Metrics& metrics);
  ~Engine();  // cancels what is left

  // Queues a request. Throws Busy, or std::invalid_argument for one that can never be answered: an empty prompt, a token that
  // is not in the vocabulary, more tokens than the model has positions or the cache has room for.
  std::shared_ptr<Answer> submit(Request request);
  // Takes no more requests, and returns when all answers are whole, or after `patience`.
  void drain(std::chrono::milliseconds patience);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lm
