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

// What backends may assume of an integer or an address: some of its bits have a value, or Python says whether it holds.
class Tests {
 public:
  void add(const std::string& kind, int64_t value, const pybind11::object& holds) {
    const auto bits = static_cast<uint64_t>(value);
    const bool is_power = value > 0 && (bits & (bits - 1)) == 0;
    ++size_;
    if (kind == "equal") {
      add({~uint64_t{0}, bits});
    } else if (kind == "divisible" && is_power) {
      add({bits - 1, 0});
    } else {
      in_python_.push_back(holds);
      has_others_ = true;
    }
  }
  size_t size() const { return size_; }
  // Returns which tests hold for a number, as bits. More than a kernel asks of an argument do no harm: Python shares
  // compilations.
  uint64_t holding(int64_t number) const {
    const uint64_t held = uint64_t{first_.holds(number)} | uint64_t{second_.holds(number)} << 1;
    return has_others_ ? held | ask_others(number) << 2 : held;
  }

 private:
  struct OfBits {
    uint64_t bits = 0;
    uint64_t value = 1;  // never
    bool holds(int64_t number) const { return (static_cast<uint64_t>(number) & bits) == value; }
  };

  void add(const OfBits& test) {
    if (first_.bits == 0) {
      first_ = test;
    } else if (second_.bits == 0) {
      second_ = test;
    } else {
      others_.push_back(test);
      has_others_ = true;
    }
  }
  [[gnu::cold]] uint64_t ask_others(int64_t number) const {
    uint64_t held = 0;
    for (const OfBits& test : others_) held = held << 1 | (test.holds(number) ? 1 : 0);
    for (const pybind11::object& holds : in_python_) held = held << 1 | (holds(number).cast<bool>() ? 1 : 0);
    return held;
  }

  OfBits first_, second_;  // nearly all backends have no others
  bool has_others_ = false;
  size_t size_ = 0;
  std::vector<OfBits> others_;
  std::vector<pybind11::object> in_python_;
};

// What words of a key say of arguments that have no number there.
enum Tag : uint64_t { kUnknown, kNone, kBool, kFloat, kInt32, kInt64, kTensor, kConstant, kConstantInteger };
constexpr int kTagBits = 8;

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio

inline uint64_t mix(uint64_t hash, uint64_t word) {
  const __uint128_t product = static_cast<__uint128_t>(hash ^ word) * kOdd;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Returns false for an integer of more than one digit. Small ones, nearly all, are read where they lie.
inline bool read_small(PyObject* value, int64_t& number) {
  const auto* integer = reinterpret_cast<const PyLongObject*>(value);
#if PY_VERSION_HEX >= 0x030C0000
  if (!PyUnstable_Long_IsCompact(integer)) return false;
  number = PyUnstable_Long_CompactValue(integer);
#else
  const Py_ssize_t signed_digits = Py_SIZE(integer);
  if (signed_digits < -1 || signed_digits > 1) return false;
  number = signed_digits * static_cast<int64_t>(integer->ob_digit[0]);
#endif
  return true;
}

// Returns false for an integer that 64 bits do not hold.
inline bool read_integer(PyObject* value, int64_t& number) {
  if (read_small(value, number)) [[likely]]
    return true;
  int overflow = 0;
  number = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

// A key in the making, on the stack: words, and the constants that some of them are hashes of. Small integers are words.
struct Key {
  uint64_t words[kMaxParameters + 2 * kMaxOptions + 1];
  PyObject* constants[kMaxParameters + 2 * kMaxOptions];  // borrowed
  size_t word_count = 0;
  size_t constant_count = 0;

  void add(uint64_t word) { words[word_count++] = word; }
  // Returns the word of a constant, kUnknown for a value without a hash; the Python error is cleared.
  uint64_t constant(PyObject* value) {
    int64_t number = 0;
    if (PyLong_CheckExact(value) && read_small(value, number)) {
      return kConstantInteger | static_cast<uint64_t>(number) << kTagBits;
    }
    const Py_hash_t hash = PyObject_Hash(value);
    if (hash == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return kUnknown;
    }
    constants[constant_count++] = value;
    const uint64_t mixed = mix(mix(kConstant, reinterpret_cast<uint64_t>(Py_TYPE(value))), static_cast<uint64_t>(hash));
    return kConstant | mixed << kTagBits;
  }
  uint64_t hash() const {
    uint64_t sum = word_count;  // each word has a factor of its own: no product waits for another
    for (size_t i = 0; i < word_count; ++i) sum += words[i] * (kOdd * (2 * i + 1));
    return mix(sum, kOdd);
  }
};

enum class Match { yes, no, unknown };

// Returns whether two constants are the same. Runs no Python, and so no other thread: what that takes is unknown.
inline Match match(PyObject* a, PyObject* b) {
  if (a == b) return Match::yes;
  if (Py_TYPE(a) != Py_TYPE(b)) return Match::no;
  if (PyFloat_CheckExact(a)) {  // 0.0 == -0.0, and NaN is not itself
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof(x)) == 0 ? Match::yes : Match::no;
  }
  if (PyLong_CheckExact(a) || PyUnicode_CheckExact(a)) {
    return PyObject_RichCompareBool(a, b, Py_EQ) == 1 ? Match::yes : Match::no;
  }
  if (!PyTuple_CheckExact(a)) return Match::unknown;
  const Py_ssize_t count = PyTuple_GET_SIZE(a);
  Match matched = count == PyTuple_GET_SIZE(b) ? Match::yes : Match::no;
  for (Py_ssize_t i = 0; i < count && matched == Match::yes; ++i) {
    matched = match(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
  }
  return matched;
}

// A key that is kept, with the constants.
class KeptKey {
 public:
  explicit KeptKey(const Key& key) : words_(key.words, key.words + key.word_count) {
    for (size_t i = 0; i < key.constant_count; ++i) {
      constants_.push_back(pybind11::reinterpret_borrow<pybind11::object>(key.constants[i]));
    }
  }
  Match match(const Key& key) const {
    if (words_.size() != key.word_count || constants_.size() != key.constant_count) return Match::no;
    if (std::memcmp(words_.data(), key.words, key.word_count * sizeof(uint64_t)) != 0) return Match::no;
    Match matched = Match::yes;
    for (size_t i = 0; i < key.constant_count && matched == Match::yes; ++i) {
      matched = kernelpack::match(constants_[i].ptr(), key.constants[i]);
    }
    return matched;
  }

 private:
  std::vector<uint64_t> words_;
  std::vector<pybind11::object> constants_;
};

}  // namespace kernelpack
