// What kernels say: the driver's vprintf and failed assertions.
#include <cstdio>
#include <cstring>
#include <string>

#include "simt.h"

namespace simt {

// Takes the next value out of packed arguments, each at a multiple of its size.
template <class T>
static T take(const char*& at) {
  at = (const char*)(((uintptr_t)at + sizeof(T) - 1) / sizeof(T) * sizeof(T));
  T value;
  memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

extern "C" {

// Prints a text whose conversions take the values in `packed`; returns how many letters that are.
int simt_vprintf(const char* format, const char* packed) {
  std::string line;
  char room[128];
  for (const char* at = format; *at; at++) {
    if (*at != '%') {
      line += *at;
      continue;
    }
    std::string one(1, *at++);
    while (strchr("0123456789l", *at)) one += *at++;
    one += *at;
    if (strchr("fa", *at))
      snprintf(room, sizeof room, one.c_str(), take<double>(packed));
    else if (*at == 'p' || one.find('l') != std::string::npos)
      snprintf(room, sizeof room, one.c_str(), take<long long>(packed));
    else
      snprintf(room, sizeof room, one.c_str(), take<int>(packed));
    line += room;
  }
  fwrite(line.data(), 1, line.size(), stdout);
  fflush(stdout);
  return (int)line.size();
}

void simt_assertfail(Site site, const char* message, const char* file, unsigned line, const char* function, uint64_t) {
  fail("assertion", site, "%s (%s:%u, in %s)", message, file, line, function);
}

}  // extern "C"
}  // namespace simt
