// What is asked of a model and what it answers: handed between the threads of clients and the one thread of the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lm {

// How a token is chosen. Names, ranges and meaning are those of OpenAI's API, and of vLLM's where that has none.
struct Sampling {
  float temperature = 1, top_p = 1, min_p = 0;
  int top_k = 0;  // 0: of all
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  uint64_t seed = 0;
  std::map<int, float> bias;  // added to logits, by token
};

struct Request {
  std::vector<int> prompt;  // at least one token
  int max_tokens = 16;
  Sampling sampling;
  std::vector<std::string> stop;  // a text ends before the first of these that it would hold
  bool ignore_end = false;        // go on after tokens that end a text
  int alternatives = -1;          // of how many tokens the log-probability is wanted beside the chosen one's; -1: not even that
};

struct Alternative {
  int token;
  float log_probability;
};

struct Token {
  int id;
  float log_probability = 0;
  std::vector<Alternative> alternatives;  // the likeliest first
};

enum class End { none, stop, length, cancelled, failed };

// What is new of an answer. `text` is whole characters of UTF-8, and may come later than its tokens.
struct Update {
  std::string text;
  std::vector<Token> tokens;
  End end = End::none;  // no update follows another than `none`
  std::string error;    // for `failed`
};

// An answer while it is written. Its client takes updates and may cancel; the engine adds updates.
class Answer {
 public:
  // The next update; none after `patience`.
  std::optional<Update> next(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return !updates_.empty(); })) return std::nullopt;
    Update update = std::move(updates_.front());
    updates_.pop_front();
    return update;
  }
  void add(Update update) {
    {
      const std::lock_guard lock(mutex_);
      updates_.push_back(std::move(update));
    }
    changed_.notify_one();
  }
  void cancel() { cancelled_ = true; }
  bool is_cancelled() const { return cancelled_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Update> updates_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace lm
