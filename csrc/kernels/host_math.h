// Arithmetic of host functions: Python's meaning of //, % and /, in 64 bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernels/kernel.h"

namespace kernelpack {

inline int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) throw Error("integer division or modulo by zero");
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));  // INT64_MIN / -1 would trap
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

inline int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) throw Error("integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

inline double floor_mod(double a, double b) {
  if (b == 0) throw Error("float modulo by zero");
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

// a / b may round up to the integer above: what is left says which one is below.
inline double floor_div(double a, double b) {
  if (b == 0) throw Error("float floor division by zero");
  const double rest = std::fmod(a, b);
  const double whole = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0));
  if (whole == 0) return std::copysign(0.0, a / b);
  const double below = std::floor(whole);
  return whole - below > 0.5 ? below + 1 : below;
}

inline double true_div(double a, double b) {
  if (b == 0) throw Error("float division by zero");
  return a / b;
}

inline int64_t min(int64_t a, int64_t b) {
  return b < a ? b : a;
}
inline int64_t max(int64_t a, int64_t b) {
  return b > a ? b : a;
}
// Of numbers and NaN, as Python's: the first.
inline double min(double a, double b) {
  return b < a ? b : a;
}
inline double max(double a, double b) {
  return b > a ? b : a;
}

inline int64_t cdiv(int64_t a, int64_t b) {
  const uint32_t n = static_cast<uint32_t>(a), d = static_cast<uint32_t>(b);
  if (n == a && d == b && d != 0) [[likely]]
    return n / d + (n % d != 0);  // a division of 32 bits takes half as long
  return -floor_div(-a, b);
}

inline int64_t next_power_of_2(int64_t n) {
  int64_t power = 1;
  while (power < n && power < (int64_t{1} << 62)) power *= 2;
  return power;
}

// base ** exponent for exponent >= 0.
inline int64_t integer_pow(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) result *= base;
  return result;
}

inline int64_t shift_left(int64_t a, int64_t count) {
  if (count < 0) throw Error("negative shift count");
  if (a == 0) return 0;
  const int64_t shifted = count < 64 ? static_cast<int64_t>(static_cast<uint64_t>(a) << count) : 0;
  if (count > 63 || shifted >> count != a) {
    throw Error(std::to_string(a) + " << " + std::to_string(count) + " does not fit 64 bits");
  }
  return shifted;
}

inline int64_t shift_right(int64_t a, int64_t count) {
  if (count < 0) throw Error("negative shift count");
  return a >> (count < 64 ? count : 63);
}

// Towards zero.
inline int64_t to_int(double x) {
  if (!(x >= -9223372036854775808.0 && x < 9223372036854775808.0)) {  // nor is NaN
    throw Error("a float of " + std::to_string(x) + " is no integer of 64 bits");
  }
  return static_cast<int64_t>(x);
}

inline double checked_sqrt(double x) {
  if (x < 0) throw Error("math.sqrt of a negative number");
  return std::sqrt(x);
}

inline double checked_log(double x) {
  if (x <= 0) throw Error("math.log of a number that is not positive");
  return std::log(x);
}

inline double checked_log2(double x) {
  if (x <= 0) throw Error("math.log2 of a number that is not positive");
  return std::log2(x);
}

}  // namespace kernelpack
