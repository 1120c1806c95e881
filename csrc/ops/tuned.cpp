// The choice among the configs of a launch, and the environment variable that overrides what was measured.
#include "ops/tuned.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ops/call.h"

namespace kernelpack {
namespace {

// Returns the position of the config that KERNELPACK_CONFIG asks for ("kernel=number,..."), or -1 if it asks for none.
// Throws Error for one that the library does not hold, and for what has another form.
int forced_config(const char* kernel, const TunedPoint& point) {
  static const char* const text = std::getenv("KERNELPACK_CONFIG");
  if (text == nullptr) return -1;
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

int Call::config(const LaunchSite& site, const Tuning& tuning, int point, std::initializer_list<int64_t> sizes) const {
  const int target = backend_.target(op_, device_.index, site.products);
  const TunedPoint* tuned = tuning.points[backend_.index()][target][point];
  if (tuned == nullptr) return 0;
  const int forced = forced_config(site.kernel, *tuned);
  return forced >= 0 ? forced : tuned->choose(sizes.begin(), static_cast<int>(sizes.size()));
}

}  // namespace kernelpack
