// Counts of what the server did, in Prometheus' text format; names are vLLM's where the meaning is the same.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace lm {

// All methods may be called from any thread.
class Metrics {
 public:
  void add(const std::string& counter, double value = 1);      // e.g. "vllm:generation_tokens_total", labels included
  void set(const std::string& gauge, double value);            // e.g. "vllm:num_requests_running"
  void observe(const std::string& histogram, double seconds);  // e.g. "vllm:time_to_first_token_seconds"
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  // TODO(metrics.cpp)
};

}  // namespace lm
