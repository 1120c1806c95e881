// Counts of what the server did, in Prometheus' text format; names are vLLM's where the meaning is the same.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace lm {

// All methods may be called from any thread. Names are those that metrics.cpp lists.
class Metrics {
 public:
  Metrics();
  void add(const std::string& counter, double value = 1);      // e.g. "vllm:generation_tokens_total", labels included
  void set(const std::string& gauge, double value);            // e.g. "vllm:num_requests_running"
  void observe(const std::string& histogram, double seconds);  // e.g. "vllm:time_to_first_token_seconds"
  std::string text() const;

 private:
  struct Histogram {
    std::vector<uint64_t> counts;  // up to each bound, above the one before, and above all
    double sum = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::string, double> values_;  // by name and labels
  std::map<std::string, Histogram> histograms_;
};

}  // namespace lm
