// What tests ask the fake driver that KERNELPACK_LIBCUDA names (mock_cuda.cpp), once the launcher has opened it or before.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

inline void* mock_symbol(const char* name) {
  return dlsym(dlopen(std::getenv("KERNELPACK_LIBCUDA"), RTLD_NOW), name);
}

// Returns how often a function of the driver was called.
inline int mock_count(const char* function) {
  return reinterpret_cast<int (*)(const char*)>(mock_symbol("mock_count"))(function);
}

// What the driver answers from now on, `function=result`, "" for its own answers.
inline void mock_fail(const std::string& what) {
  reinterpret_cast<void (*)(const char*)>(mock_symbol("mock_fail"))(what.c_str());
}
