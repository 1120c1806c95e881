// Serves OpenAI's API by HTTP, one request a connection.
#pragma once

#include <string>

#include "chat.h"
#include "engine.h"
#include "metrics.h"
#include "tokenizer.h"

namespace lm {

struct HttpOptions {
  std::string name;  // of the model
  std::string host = "127.0.0.1";
  std::string key;                              // what /v1/... is asked with; none where it is empty
  int port = 8000;                              // 0: any that is free
  int connections = 512;                        // that are served at once; others wait
  int body_bytes = 1 << 20;                     // of a request; its head may have kHeadBytes
  int read_seconds = 10, answer_seconds = 600;  // for a request to be read, and for its answer to be written
  int drain_seconds = 30;                       // for answers to end after SIGTERM or SIGINT
  int room = 0;                                 // tokens that a prompt and its answer may have together
  int max_tokens = 0;                           // of an answer
};

// Serves until SIGTERM or SIGINT, and ends what is begun. Throws std::runtime_error where it cannot listen.
void serve(const HttpOptions& options, const Tokenizer& tokenizer, const Chat& chat, Engine& engine, const Metrics& metrics);

}  // namespace lm
