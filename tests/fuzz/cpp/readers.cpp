// Reads inputs from a pipe and gives each to a reader of csrc: the first byte says which. What is refused by kernelpack::Error
// passes; anything else ends this process.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/cuda_targets.h"
#include "kernels/tensor_map.h"
#include "kernels/zstd_image.h"
#include "ops/call.h"
#include "pipe.h"

namespace {

using kernelpack::Error;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

std::vector<const char*> pointers(const std::vector<std::string>& texts, size_t first) {
  std::vector<const char*> found;
  for (size_t i = first; i < texts.size(); ++i) found.push_back(texts[i].c_str());
  return found;
}

// The size that the library states on a line, then a frame; it is the next one's prefix, too.
void images(const std::string& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data()) + std::min(end + 1, text.size());
  const auto stored = static_cast<uint32_t>(text.size() - std::min(end + 1, text.size()));
  const auto size = static_cast<uint32_t>(std::strtoul(text.substr(0, end).c_str(), nullptr, 10) % (1 << 20));
  kernelpack::Image first{bytes, stored, size, kernelpack::unpack_zstd};
  kernelpack::Image second{bytes, stored, size, kernelpack::unpack_zstd, &first};
  const std::unique_ptr<const unsigned char[]> a(first.get());
  const std::unique_ptr<const unsigned char[]> b(second.get());
}

// The values of the kernel's parameters on one line, then what the compiler recorded of tensor maps.
void tensor_maps(const std::string& text) {
  const size_t end = text.find('\n');
  const std::string values = text.substr(0, end);
  const std::string record = end == std::string::npos ? "" : text.substr(end + 1);
  const kernelpack::cuda::TensorMaps maps(record.c_str());
  std::vector<int64_t> numbers(maps.parameter_count());
  const char* at = values.c_str();
  for (int64_t& number : numbers) {
    char* next = nullptr;
    number = std::strtoll(at, &next, 10);
    at = next;
  }
  std::vector<void*> params;
  for (int64_t& number : numbers) params.push_back(&number);
  std::vector<kernelpack::cuda::TensorMap> encoded(maps.size());
  static const uint64_t padding = kernelpack::cuda::padding_memory("describing empty tensors");
  maps.encode("kernel", params.data(), padding, nullptr, encoded.data());
}

// KERNELPACK_CPU_TARGET, then targets that a library holds.
void targets(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  const std::vector<const char*> held = pointers(lines, 1);
  const int count = static_cast<int>(held.size());
  for (const int capability : {75, 80, 90, 100}) kernelpack::cuda::choose_target(held.data(), count, {capability, 12040});
  setenv("KERNELPACK_CPU_TARGET", lines[0].c_str(), 1);
  for (const bool products : {false, true}) {
    const int chosen = kernelpack::cpu_launcher.choose(held.data(), count, 0, {products});
    if (chosen >= count) std::abort();
  }
}

// KERNELPACK_CONFIG, which a process reads once: in a fork. Then the sizes of a call.
void configs(const std::string& text) {
  using namespace kernelpack;
  const std::vector<std::string> lines = lines_of(text);
  setenv("KERNELPACK_CONFIG", lines[0].c_str(), 1);
  report_unknown_kernels("fuzz", {"mha_fwd", "matmul"});
  static const char* const kTargets[] = {"cpu:x86-64"};
  static const int64_t kBounds[] = {1, 64, 32};
  static const uint8_t kCounts[] = {2, 1}, kChoices[] = {0, 1, 2, 0, 1, 2}, kConfigs[] = {0, 3, 12};
  static const TunedPoint kPoint{kBounds, kCounts, kChoices, kConfigs, 3};
  static const TunedPoint* const kPoints[] = {&kPoint};
  static const TunedPoint* const* const kByTarget[] = {kPoints};
  static const TunedPoint* const* const* const kByBackend[] = {kByTarget};
  static const Tuning kTuning{kByBackend};
  static const LaunchSite kSite{"mha_fwd", false, nullptr, nullptr, 0, &kTuning};
  unsetenv("KERNELPACK_CPU_TARGET");
  const pid_t child = fork();
  if (child != 0) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) std::abort();
    if (WEXITSTATUS(status) == 1) throw Error("refused");
    return;
  }
  int code = 0;
  try {
    Backend backend(0, cpu_launcher, kTargets, 1, torch_codes.cpu);
    const OpInfo op{"my::mha", "ops.py:1", "kernelpack build"};
    const Call call(op, backend, 0);
    const int64_t size = lines.size() > 1 ? std::strtoll(lines[1].c_str(), nullptr, 10) : 0;
    const int chosen = call.config(kSite, 0, {size, size});
    if (chosen < 0 || chosen >= 3) code = 2;
  } catch (const Error&) {
    code = 1;
  }
  _exit(code);
}

// What an op refuses a call with. The file is read by the caller.
void traces(const std::string& text) {
  kernelpack::trace::begin("my::scale", {});
  kernelpack::trace::refuse(text);
  kernelpack::trace::begin("my::scale", {});  // which writes the call before
}

void read_one(const std::string& input) {
  if (input.empty()) return;
  const std::string text(input.c_str() + 1, std::strlen(input.c_str() + 1));
  switch (input[0]) {
    case 'i':
      return images(text);
    case 'm':
      return tensor_maps(text);
    case 't':
      return targets(text);
    case 'c':
      return configs(text);
    case 'r':
      return traces(input.substr(1));
    default:
      return;
  }
}

}  // namespace

int main() {
  return answer_inputs<Error>(read_one);
}
