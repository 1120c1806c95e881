// Reads inputs from a pipe. Answers each with one byte, 0 for read and 1 for refused, and how many branches all have reached.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "coverage.h"

inline bool take(void* to, size_t size) {
  for (size_t taken = 0; taken < size;) {
    const ssize_t more = read(STDIN_FILENO, static_cast<char*>(to) + taken, size - taken);
    if (more <= 0) return false;
    taken += static_cast<size_t>(more);
  }
  return true;
}

// Gives each input to a reader, until there are no more. Only what it refuses by a Refusal passes. Returns the program's
// status.
template <class Refusal>
int answer_inputs(void (*read_one)(const std::string&)) {
  coverage::begin();
  uint32_t size = 0;
  while (take(&size, sizeof size)) {
    std::string input(size, '\0');
    if (!take(input.data(), size)) return 1;
    unsigned char answer[5] = {0};
    try {
      read_one(input);
    } catch (const Refusal&) {
      answer[0] = 1;
    }
    const uint32_t reached = coverage::count();
    std::memcpy(answer + 1, &reached, sizeof reached);
    if (write(STDOUT_FILENO, answer, sizeof answer) != sizeof answer) return 1;
  }
  return 0;
}
