// Keeps counters, gauges and histograms, and writes them: https://prometheus.io/docs/instrumenting/exposition_formats/
#include "metrics.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <stdexcept>

namespace lm {
namespace {

struct Known {
  const char *name, *type, *help;
};

constexpr Known kKnown[] = {
    {"vllm:num_requests_running", "gauge", "Answers that are written now."},
    {"vllm:num_requests_waiting", "gauge", "Answers that wait in the queue."},
    {"vllm:kv_cache_usage_perc", "gauge", "Part of the cache's pages that is in use; 1 is all."},
    {"vllm:prompt_tokens_total", "counter", "Tokens of prompts."},
    {"vllm:generation_tokens_total", "counter", "Tokens that were chosen."},
    {"vllm:request_success_total", "counter", "Answers that ended, by the reason."},
    {"vllm:num_preemptions_total", "counter", "Times that a sequence gave its pages back, to be read again."},
    {"vllm:prefix_cache_queries_total", "counter", "Tokens of prompts that were looked for in the cache."},
    {"vllm:prefix_cache_hits_total", "counter", "Tokens of prompts that were found in the cache."},
    {"vllm:time_to_first_token_seconds", "histogram", "From a request to its first token."},
    {"vllm:inter_token_latency_seconds", "histogram", "From a token to the next one of the same answer."},
    {"vllm:e2e_request_latency_seconds", "histogram", "From a request to the end of its answer."},
};
constexpr double kBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};  // seconds

std::string without_labels(const std::string& name) {
  return name.substr(0, name.find('{'));
}

void check(const std::string& name, const std::string& type) {
  const auto is = [&](const Known& known) { return known.name == without_labels(name) && known.type == type; };
  if (std::none_of(std::begin(kKnown), std::end(kKnown), is)) throw std::logic_error("there is no " + type + " " + name);
}

std::string number(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

Metrics::Metrics() {
  for (const auto& [name, type, help] : kKnown) {
    if (type == std::string("histogram")) {
      histograms_[name].counts.resize(std::size(kBounds) + 1);
    } else {
      values_[name] = 0;
    }
  }
  values_.erase("vllm:request_success_total");  // is never without its label
}

void Metrics::add(const std::string& counter, double value) {
  check(counter, "counter");
  const std::lock_guard lock(mutex_);
  values_[counter] += value;
}

void Metrics::set(const std::string& gauge, double value) {
  check(gauge, "gauge");
  const std::lock_guard lock(mutex_);
  values_[gauge] = value;
}

void Metrics::observe(const std::string& histogram, double seconds) {
  check(histogram, "histogram");
  const std::lock_guard lock(mutex_);
  Histogram& found = histograms_[histogram];
  ++found.counts[std::lower_bound(std::begin(kBounds), std::end(kBounds), seconds) - std::begin(kBounds)];
  found.sum += seconds;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto line = [&](const std::string& name, double value) { text += name + " " + number(value) + "\n"; };
  for (const auto& [name, type, help] : kKnown) {
    text += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
    for (const auto& [key, value] : values_) {
      if (without_labels(key) == name) line(key, value);
    }
    const auto found = histograms_.find(name);
    if (found == histograms_.end()) continue;
    double count = 0;
    for (size_t i = 0; i < found->second.counts.size(); ++i) {
      count += static_cast<double>(found->second.counts[i]);
      const std::string bound = i < std::size(kBounds) ? number(kBounds[i]) : "+Inf";
      line(std::string(name) + "_bucket{le=\"" + bound + "\"}", count);
    }
    line(std::string(name) + "_sum", found->second.sum);
    line(std::string(name) + "_count", count);
  }
  return text;
}

}  // namespace lm
