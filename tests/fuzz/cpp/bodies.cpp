// Reads bodies of the language-model server's API: (c)ompletions and (h) chats. What is taken lies within the ranges that are
// promised, and its answer, streamed or whole, is JSON.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "api.h"
#include "pipe.h"

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

void expect_json(const std::string& text) {
  expect(nlohmann::json::accept(text));
}

void check(const lm::Request& request, const lm::Api& api) {
  const lm::Sampling& by = request.sampling;
  const auto size = static_cast<int>(request.prompt.size());
  expect(size > 0 && request.max_tokens > 0 && request.max_tokens <= api.max_tokens && size + request.max_tokens <= api.room);
  for (const int token : request.prompt) expect(token >= 0 && token < api.tokenizer.size());
  expect(by.temperature >= 0 && by.temperature <= 2 && by.top_p > 0 && by.top_p <= 1 && by.min_p >= 0 && by.min_p <= 1);
  expect(by.top_k >= 0 && by.repetition_penalty > 0 && by.repetition_penalty <= 2);
  expect(by.presence_penalty >= -2 && by.presence_penalty <= 2 && by.frequency_penalty >= -2 && by.frequency_penalty <= 2);
  for (const auto& [token, bias] : by.bias) expect(token >= 0 && token < api.tokenizer.size() && bias >= -100 && bias <= 100);
  expect(request.stop.size() <= 4 && request.alternatives >= -1 && request.alternatives <= 20);
  for (const std::string& stop : request.stop) expect(!stop.empty());
}

void read_one(const std::string& input) {
  static const lm::Gguf file{std::string(std::getenv("FUZZ_VOCABULARY"))};
  static const lm::Tokenizer tokenizer(file);
  static const lm::Chat chat(file, tokenizer);
  static const lm::Api api{tokenizer, chat, "model", 512, 256};
  expect(chat.problem().empty());
  if (input.empty()) return;
  try {
    lm::Call call(api, input[0] == 'h', input.substr(1));
    expect(!call.requests.empty() && call.requests.size() <= 128);
    for (size_t i = 0; i < call.requests.size(); ++i) {
      check(call.requests[i], api);
      const lm::Token token{call.requests[i].prompt[0], -1.0f / 0.0f, {{0, -2}, {300, 0.0f / 0.0f}}};
      for (const lm::End end : {lm::End::none, lm::End::length}) {
        const std::string event = call.add(i, {"\xc3\xa9\"", {token}, end, ""});
        expect(event.empty() != call.stream);
        if (call.stream) expect_json(event.substr(6));
      }
    }
    expect_json(call.whole());
    expect(call.last_events().ends_with("data: [DONE]\n\n"));
  } catch (const lm::ApiError& error) {
    expect_json(error.body());
    expect(error.status == 400 || error.status == 404);
    throw;
  }
}

}  // namespace

int main() {
  return answer_inputs<lm::ApiError>(read_one);
}
