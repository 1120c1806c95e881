// OpenAI's API: bodies of requests become Requests, and answers become bodies or events. Fields and shapes:
// https://platform.openai.com/docs/api-reference, and vLLM's top_k, min_p, repetition_penalty and ignore_eos.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "chat.h"
#include "request.h"
#include "tokenizer.h"

namespace lm {

// What a client is told in place of an answer. `param` is the field that is wrong, or none.
struct ApiError : std::runtime_error {
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : runtime_error(message), status(status), param(std::move(param)), code(std::move(code)) {}
  std::string body() const;  // JSON

  int status;  // of HTTP
  std::string param, code;
};

struct Api {
  std::string models() const;  // a list of one
  std::string model() const;

  const Tokenizer& tokenizer;
  const Chat& chat;
  std::string name;  // of the model
  int room;          // tokens that a prompt and its answer may have together
  int max_tokens;    // of an answer
};

// A call of /v1/completions, or with `chat` of /v1/chat/completions.
class Call {
 public:
  // Throws ApiError, which names the field, what was given and what is allowed.
  Call(const Api& api, bool chat, const std::string& body);

  // What to ask: for each prompt as many requests as there are choices.
  std::vector<Request> requests;
  bool stream = false;

  // Notes what is new of the answer to requests[index], and returns the event that tells a streaming client, or "". Throws
  // ApiError where the answer failed.
  std::string add(size_t index, Update update);
  std::string last_events() const;  // after all answers' ends
  std::string whole();              // the answers, for a client that does not stream

 private:
  struct Choice {
    std::string text;
    std::vector<Token> tokens;
    size_t count = 0, characters = 0;  // of tokens, and of their text
    bool is_begun = false;
    End end = End::none;
  };

  nlohmann::json answer(const nlohmann::json& choices, const nlohmann::json& usage) const;
  nlohmann::json usage() const;
  nlohmann::json part(size_t index, const std::string& text, const std::vector<Token>& tokens);
  nlohmann::json logged(const std::vector<Token>& tokens, size_t& characters) const;

  const Api& api_;
  bool chat_, usage_ = false;
  size_t prompt_tokens_ = 0;
  std::string id_;
  long created_;
  std::vector<Choice> choices_;
};

}  // namespace lm
