// What both C++ programs do alike: load the op library, read batches, compare and time, and make sure that there is no Python.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace serving {

// Maps token ids (int64, [batch, sequence]) to embeddings (float32, [batch, hidden]).
using Model = std::function<at::Tensor(const at::Tensor& tokens)>;

// Embeddings have length 1, and two float32 models that sum in another order differ in the seventh digit.
constexpr double kTolerance = 1e-5;

// Makes torch.ops.kernelpack known to this process. A library that torch refused says why.
inline void load_ops(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto load_error = reinterpret_cast<const char* (*)()>(dlsym(library, "kernelpack_load_error"));
  if (load_error == nullptr) throw std::runtime_error(std::string(path) + " is not the op library of torch.ops.kernelpack");
  if (*load_error() != '\0') throw std::runtime_error(load_error());
}

// Token ids, and the embeddings that Python's model gave for them.
struct Batch {
  at::Tensor tokens;
  at::Tensor expected;
};

inline std::vector<Batch> read_batches(const char* path) {
  std::ifstream file(path);
  std::vector<Batch> batches;
  int64_t rows = 0, columns = 0, hidden = 0;
  while (file >> rows >> columns >> hidden) {
    std::vector<int64_t> tokens(rows * columns);
    std::vector<float> expected(rows * hidden);
    for (int64_t& token : tokens) file >> token;
    for (float& value : expected) file >> value;
    if (!file) throw std::runtime_error(std::string(path) + " is cut short");
    batches.push_back({at::from_blob(tokens.data(), {rows, columns}, at::kLong).clone(),
                       at::from_blob(expected.data(), {rows, hidden}, at::kFloat).clone()});
  }
  if (batches.empty() || !file.eof()) throw std::runtime_error(std::string(path) + " holds no batches, or something else");
  return batches;
}

// Returns the median time of a call in milliseconds, over `seconds` of calls and at least three.
inline double median_time(const Model& model, const at::Tensor& tokens, double seconds) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < 3 || std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    const auto start = Clock::now();
    model(tokens);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// Returns how many files are mapped into this process. Throws if one of them is libpython.
inline size_t check_no_python() {
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> files;
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    files.push_back(line.substr(slash));
    if (files.back().find("libpython") != std::string::npos)
      throw std::runtime_error("Python is in this process: " + files.back());
  }
  std::sort(files.begin(), files.end());
  return std::unique(files.begin(), files.end()) - files.begin();
}

// Runs every batch, and times it for about `seconds`. Returns whether all embeddings agree with Python's.
inline bool serve(const Model& model, const std::vector<Batch>& batches, double seconds) {
  const c10::InferenceMode guard;
  bool agree = true;
  for (const Batch& batch : batches) {
    const at::Tensor embeddings = model(batch.tokens);
    const bool same_shape = embeddings.sizes() == batch.expected.sizes();
    const double difference = same_shape ? embeddings.sub(batch.expected).abs().max().item<double>() : HUGE_VAL;
    const bool good = difference <= kTolerance;  // false for NaN
    std::printf("  %3ld x %-3ld tokens  %9.2f ms   largest difference from Python %.1e%s\n", long(batch.tokens.size(0)),
                long(batch.tokens.size(1)), median_time(model, batch.tokens, seconds), difference, good ? "" : "  DISAGREES");
    agree = agree && good;
  }
  std::printf("  %d threads; %zu files are mapped into the process, none is libpython\n", at::get_num_threads(),
              check_no_python());
  return agree;
}

// The whole program. Returns its exit status.
inline int run(int argc, char** argv, const std::function<Model(const char* path)>& load_model) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: %s libkernelpack_ops.so MODEL BATCHES [SECONDS_PER_BATCH]\n", argv[0]);
    return 2;
  }
  try {
    load_ops(argv[1]);
    return serve(load_model(argv[2]), read_batches(argv[3]), argc == 5 ? std::stod(argv[4]) : 0.5) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace serving
