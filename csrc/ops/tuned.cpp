// The choice among the configs of a launch, and the environment variable that overrides what was measured.
#include "ops/tuned.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ops/call.h"

namespace kernelpack {
namespace {

const char* asked_configs() {
  const char* text = std::getenv("KERNELPACK_CONFIG");
  return text == nullptr ? "" : text;
}

// Returns the position of the config that KERNELPACK_CONFIG asks for ("kernel=number,..."), or -1 if it asks for none.
// Throws Error for one that the library does not hold, and for what has another form.
int forced_config(const char* kernel, const TunedPoint& point) {
  static const char* const text = asked_configs();
  const size_t length = std::strlen(kernel);
  for (const char* at = text; *at != '\0'; at += *at == ',') {
    const char* end = at + std::strcspn(at, ",");
    if (std::find(at, end, '=') == end) {
      throw Error("KERNELPACK_CONFIG holds '" + std::string(at, end) +
                  "', expected kernel=number,...\n  to fix: export KERNELPACK_CONFIG=" + kernel + "=" +
                  std::to_string(point.configs[0]) + "; kernelpack tune --show lists them");
    }
    if (std::strncmp(at, kernel, length) == 0 && at[length] == '=') {
      const std::string number(at + length + 1, end);
      std::string built;
      for (int i = 0; i < point.config_count; ++i) {
        if (number == std::to_string(point.configs[i])) return i;
        built += (i ? ", " : "") + std::to_string(point.configs[i]);
      }
      throw Error("KERNELPACK_CONFIG asks for config " + number + " of " + kernel + ", this library holds " + built +
                  " for these arguments\n  to fix: kernelpack tune --show lists them");
    }
    at = end;
  }
  return -1;
}

}  // namespace

void report_unknown_kernels(const char* name_space, const std::set<std::string>& kernels) {
  if (kernels.empty()) return;  // it is meant for another library
  for (const char* at = asked_configs(); *at != '\0'; at += *at == ',') {
    const std::string kernel(at, std::strcspn(at, "=,"));
    at += std::strcspn(at, ",");
    if (kernels.count(kernel) != 0) continue;
    std::string known;
    for (const std::string& name : kernels) known += (known.empty() ? "" : ", ") + name;
    std::fprintf(stderr,
                 "kernelpack: KERNELPACK_CONFIG names '%s'; the kernels of torch.ops.%s with configs to choose are %s\n",
                 kernel.c_str(), name_space, known.c_str());
  }
}

int Call::config(const LaunchSite& site, int point, std::initializer_list<int64_t> sizes) const {
  const int target = backend_.target(op_, device_.index, site.traits);
  const TunedPoint* tuned = site.tuning->points[backend_.index()][target][point];
  if (tuned == nullptr) return 0;
  const int forced = forced_config(site.kernel, *tuned);
  return forced >= 0 ? forced : tuned->choose(sizes.begin(), static_cast<int>(sizes.size()));
}

}  // namespace kernelpack
