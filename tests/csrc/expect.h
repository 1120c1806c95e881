// What tests of the loaders and launchers are written with: TEST(name) { ... }, EXPECT and expect_error.
#pragma once

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "kernels/kernel.h"

// All tests of the program, by name.
inline std::map<std::string, void (*)()>& all_tests() {
  static std::map<std::string, void (*)()> tests;
  return tests;
}

#define TEST(name)                                                      \
  void name();                                                          \
  const bool name##_is_known = all_tests().emplace(#name, name).second; \
  void name()

#define EXPECT(condition)                                                             \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::cerr << __FILE__ << ":" << __LINE__ << ": not so: " << #condition << "\n"; \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)

// Runs `body`, which must throw an Error whose text holds `part`.
inline void expect_error(const std::string& part, const std::function<void()>& body) {
  try {
    body();
  } catch (const kernelpack::Error& error) {
    if (std::string(error.what()).find(part) != std::string::npos) return;
    std::cerr << "another error: " << error.what() << "\nexpected: " << part << "\n";
    std::exit(1);
  }
  std::cerr << "no error; expected: " << part << "\n";
  std::exit(1);
}
