// Serves the API by HTTP: https://www.rfc-editor.org/rfc/rfc9112, one request a connection.
#pragma once

#include <string>

#include "api.h"
#include "engine.h"
#include "metrics.h"

namespace lm {

struct HttpOptions {
  std::string host, key;  // `key`: what /v1/... is asked with; none where it is empty
  int port;               // 0: any that is free
  int connections;        // that are served at once; others wait
  int head_bytes, body_bytes;
  int read_seconds, answer_seconds;  // for a request to be read, and for its answer to be written
  int drain_seconds;                 // for answers to end after SIGTERM or SIGINT
};

// Serves until SIGTERM or SIGINT, then ends what is begun. Throws std::runtime_error where it cannot listen.
void serve(const Api& api, Engine& engine, const Metrics& metrics, const HttpOptions& options);

}  // namespace lm
