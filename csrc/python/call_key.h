// The keys of calls: what launches of one kernel are told apart by, as words that are quick to make and to compare.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kernelpack {

constexpr Py_ssize_t kMaxParameters = 256;
constexpr size_t kMaxOptions = 16;
constexpr size_t kMaxTests = 24;  // a bit of a key's word for each

// What a backend may assume of an integer or an address: some of its bits have a value. `holds` is asked where it is more.
struct Test {
  uint64_t bits;
  uint64_t value;
  pybind11::object holds;  // null where the bits say it

  static Test of(const std::string& kind, int64_t value, const pybind11::object& holds) {
    if (kind == "equal") return {~uint64_t{0}, static_cast<uint64_t>(value), {}};
    if (kind == "divisible" && value > 0 && (value & (value - 1)) == 0) return {static_cast<uint64_t>(value) - 1, 0, {}};
    return {0, 0, holds};
  }
};

// What words of a key say of arguments that have no number there.
enum Tag : uint64_t { kNone = 1, kBool, kFloat, kInt32, kInt64, kTensor, kConstant };

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio

inline uint64_t mix(uint64_t hash, uint64_t word) {
  const __uint128_t product = static_cast<__uint128_t>(hash ^ word) * kOdd;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Returns false for an integer that 64 bits do not hold. Small ones, nearly all, are read where they lie.
inline bool read_integer(PyObject* value, int64_t& number) {
#if PY_VERSION_HEX >= 0x030C0000
  const auto* integer = reinterpret_cast<const PyLongObject*>(value);
  if (PyUnstable_Long_IsCompact(integer)) {
    number = PyUnstable_Long_CompactValue(integer);
    return true;
  }
#endif
  int overflow = 0;
  number = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

// A key in the making, on the stack: words, and the constants that some of them are hashes of.
struct Key {
  uint64_t words[kMaxParameters + 2 * kMaxOptions + 1];
  PyObject* constants[kMaxParameters + 2 * kMaxOptions];  // borrowed
  size_t word_count = 0;
  size_t constant_count = 0;

  void add(uint64_t word) { words[word_count++] = word; }
  // Returns false for a value without a hash; the Python error is cleared.
  bool add_constant(PyObject* value) {
    const Py_hash_t hash = PyObject_Hash(value);
    if (hash == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
    add(mix(mix(kConstant, reinterpret_cast<uint64_t>(Py_TYPE(value))), static_cast<uint64_t>(hash)));
    constants[constant_count++] = value;
    return true;
  }
  uint64_t hash() const {
    uint64_t sum = word_count;  // each word has a factor of its own: no product waits for another
    for (size_t i = 0; i < word_count; ++i) sum += words[i] * (kOdd * (2 * i + 1));
    return mix(sum, kOdd);
  }
};

inline bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {  // 0.0 == -0.0, and NaN is not itself
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof(x)) == 0;
  }
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

// A key that is kept, with the constants.
class KeptKey {
 public:
  explicit KeptKey(const Key& key) : words_(key.words, key.words + key.word_count) {
    for (size_t i = 0; i < key.constant_count; ++i) {
      constants_.push_back(pybind11::reinterpret_borrow<pybind11::object>(key.constants[i]));
    }
  }
  bool equals(const Key& key) const {
    if (words_.size() != key.word_count || constants_.size() != key.constant_count) return false;
    if (std::memcmp(words_.data(), key.words, key.word_count * sizeof(uint64_t)) != 0) return false;
    for (size_t i = 0; i < key.constant_count; ++i) {
      if (!same_constant(constants_[i].ptr(), key.constants[i])) return false;
    }
    return true;
  }

 private:
  std::vector<uint64_t> words_;
  std::vector<pybind11::object> constants_;
};

}  // namespace kernelpack
