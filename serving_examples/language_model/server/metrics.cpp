// Keeps and writes metrics: https://prometheus.io/docs/instrumenting/exposition_formats/
#include "metrics.h"

#include <algorithm>
#include <charconv>

namespace lm {
namespace {

const std::map<std::string, std::string> kMeanings = {
    {"vllm:num_requests_running", "Answers that are written now."},
    {"vllm:num_requests_waiting", "Answers that wait in the queue."},
    {"vllm:kv_cache_usage_perc", "Part of the cache's pages that is in use; 1 is all."},
    {"vllm:prompt_tokens_total", "Tokens of prompts."},
    {"vllm:generation_tokens_total", "Tokens that were chosen."},
    {"vllm:request_success_total", "Answers that ended, by the reason."},
    {"vllm:num_preemptions_total", "Times that a sequence gave its pages back, to be read again."},
    {"vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for in the cache."},
    {"vllm:prefix_cache_hits_total", "Tokens of prompts that were found in the cache."},
    {"vllm:time_to_first_token_seconds", "From a request to its first token."},
    {"vllm:inter_token_latency_seconds", "From a token to the next one of the same answer."},
    {"vllm:e2e_request_latency_seconds", "From a request to the end of its answer."},
};
const std::vector<double> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

std::string number(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

Metrics::Metrics() {
  for (const auto& [name, meaning] : kMeanings) {
    if (name.ends_with("_seconds")) {
      histograms_[name].counts.resize(kBounds.size() + 1);
    } else if (name != "vllm:request_success_total") {  // which is never without its label
      values_[name] = 0;
    }
  }
}

void Metrics::add(const std::string& counter, double value) {
  const std::lock_guard lock(mutex_);
  values_[counter] += value;
}

void Metrics::set(const std::string& gauge, double value) {
  const std::lock_guard lock(mutex_);
  values_[gauge] = value;
}

void Metrics::observe(const std::string& histogram, double seconds) {
  const std::lock_guard lock(mutex_);
  Histogram& found = histograms_.at(histogram);
  ++found.counts[std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin()];
  found.sum += seconds;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text, last;
  const auto line = [&](const std::string& name, double value) { text += name + " " + number(value) + "\n"; };
  const auto head = [&](const std::string& name, const std::string& type) {
    text += "# HELP " + name + " " + kMeanings.at(name) + "\n# TYPE " + name + " " + type + "\n";
  };
  for (const auto& [name, value] : values_) {
    const std::string bare = name.substr(0, name.find('{'));
    if (bare != last) head(last = bare, bare.ends_with("_total") ? "counter" : "gauge");
    line(name, value);
  }
  for (const auto& [name, histogram] : histograms_) {
    head(name, "histogram");
    double count = 0;
    for (size_t i = 0; i <= kBounds.size(); ++i) {
      count += static_cast<double>(histogram.counts[i]);
      line(name + "_bucket{le=\"" + (i < kBounds.size() ? number(kBounds[i]) : "+Inf") + "\"}", count);
    }
    line(name + "_sum", histogram.sum);
    line(name + "_count", count);
  }
  return text;
}

}  // namespace lm
