// Counts equal calls in memory and appends what is new to the file now and then, so that several processes can share one. What
// is told is a line a launch.
#include "ops/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "ops/call.h"

namespace kernelpack::trace {

namespace {

bool is_recorded() {
  const char* file = std::getenv("KERNELPACK_TRACE");
  return file != nullptr && *file != '\0';
}

bool is_told() {
  static const bool told = [] {
    const char* what = std::getenv("KERNELPACK_LOG");
    if (what == nullptr || *what == '\0') return false;
    if (std::strcmp(what, "launch") == 0) return true;
    std::fprintf(stderr, "kernelpack: KERNELPACK_LOG is \"%s\"\n  to fix: set it to launch, or unset it\n", what);
    return false;
  }();
  return told;
}

// Whether a file is empty, or begins as every record does: with a call of an op, or a launch of a kernel from Python.
bool is_trace(int file) {
  char begin[16] = {};
  struct stat found{};
  if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || pread(file, begin, sizeof begin - 1, 0) < 0) return false;
  const std::string text = begin;
  return found.st_size == 0 || text.rfind("{\"op\": \"", 0) == 0 || text.rfind("{\"kernel\": \"", 0) == 0;
}

// A call's record is a line of JSON without its end: `, "calls": n}`. Lines of one call add up.
class Counts {
 public:
  void add(const std::string& record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (process_ != getpid()) {  // a fork: the parent writes what it counted
      counts_.clear();
      pending_ = 0;
      process_ = getpid();
    }
    ++counts_[record];
    if (++pending_ >= next_) {
      next_ = next_ < 65'536 ? next_ * 2 : next_;  // early ones soon, in case the process is killed
      write();
    }
  }
  ~Counts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (process_ == getpid()) write();
  }

 private:
  void write() {
    std::string text;
    for (const auto& [record, calls] : counts_) text += record + ", \"calls\": " + std::to_string(calls) + "}\n";
    counts_.clear();
    pending_ = 0;
    if (text.empty()) return;
    const char* path = std::getenv("KERNELPACK_TRACE");
    const int file = path == nullptr ? -1 : open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    const bool own = file >= 0 && is_trace(file);
    const bool whole = own && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (file >= 0) close(file);
    if (!whole && !failed_) {
      std::fprintf(stderr, "kernelpack: calls cannot be written to KERNELPACK_TRACE=%s%s\n", path == nullptr ? "" : path,
                   file >= 0 && !own ? ": it holds something else\n  to fix: name a new file" : "");
    }
    failed_ = failed_ || !whole;
  }

  std::mutex mutex_;
  std::unordered_map<std::string, int64_t> counts_;
  int64_t pending_ = 0;
  int64_t next_ = 1;
  pid_t process_ = getpid();
  bool failed_ = false;
};

Counts& counts() {
  static Counts all;
  return all;
}

// The call that a thread is in. It is complete when the next one begins or the thread ends.
struct Current {
  std::string call;      // {"op": ..., "tensors": [...]
  std::string launches;  // objects, with commas between them
  std::string refused;
  std::string told;  // what people are told of the call: my::scale(x float32[4, 8])
  pid_t process = 0;

  Current() { counts(); }  // which lives longer than this
  ~Current() { finish(); }
  void finish() {
    if (!call.empty() && process == getpid() && is_recorded()) {  // in a fork, the call was the parent's
      counts().add(call + ", \"launches\": [" + launches + "]" + (refused.empty() ? "" : ", \"refused\": " + refused));
    }
    call.clear();
    launches.clear();
    refused.clear();
  }
};

thread_local Current current;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      result += escaped;
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + '"';
}

std::string list(const Ints& values) {
  std::string result;
  for (const int64_t value : values) result += (result.empty() ? "" : ", ") + std::to_string(value);
  return "[" + result + "]";
}

// A line for people: a launch of the call that the thread is in, on stderr.
void tell(const LaunchSite& site, const char* target, const Variant& variant) {
  std::string line = "kernelpack: " + current.told + ": ";
  if (variant.kernel == nullptr) {
    line += std::string(site.kernel) + " has no variant for these arguments and " + target;
  } else {
    const Kernel& kernel = *variant.kernel;
    line += std::string(kernel.name) + " for " + kernel.target;
    if (kernel.entry != nullptr) {  // an image that a device loads
      line += ", " + std::to_string(kernel.num_warps) + " warps, " + std::to_string(kernel.shared_memory) +
              " bytes of shared memory";
    }
  }
  line += "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace

bool is_on() {
  return is_told() || is_recorded();
}

void begin(const char* op, std::initializer_list<std::reference_wrapper<const Tensor>> tensors) {
  current.finish();
  std::string texts, told;
  for (const Tensor& x : tensors) {
    texts += std::string(texts.empty() ? "" : ", ") + "{\"name\": " + quoted(x.name());
    if (x.defined()) {
      texts +=
          ", \"dtype\": " + quoted(x.dtype_name()) + ", \"shape\": " + list(x.shape()) + ", \"strides\": " + list(x.strides());
    }
    texts += "}";
    told += std::string(told.empty() ? "" : ", ") + x.name() +
            (x.defined() ? " " + std::string(x.dtype_name()) + list(x.shape()) : std::string(" None"));
  }
  current.told = std::string(op) + "(" + told + ")";
  current.process = getpid();
  current.call = "{\"op\": " + quoted(op) + ", \"tensors\": [" + texts + "]";
}

void launch(const LaunchSite& site, const char* target, uint64_t held, const Variant& variant) {
  std::string facts;
  for (int i = 0; i < site.assumption_count; ++i) {
    const bool is_plain = *site.assumptions[i] == '\0';
    if ((held >> i & 1) != 0 && !is_plain) facts += (facts.empty() ? "" : ", ") + quoted(site.assumptions[i]);
  }
  current.launches += std::string(current.launches.empty() ? "" : ", ") + "{\"kernel\": " + quoted(site.kernel) +
                      ", \"target\": " + quoted(target) +
                      ", \"variant\": " + (variant.kernel != nullptr ? quoted(variant.kernel->name) : "null") +
                      ", \"facts\": [" + facts + "]}";
  if (is_told()) tell(site, target, variant);
}

void refuse(const std::string& why) {
  current.refused = quoted(why);
}

}  // namespace kernelpack::trace
