// Numbers: formats of tensor cores, conversions and approximate functions of the hardware, and what NVIDIA's libdevice offers.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "simt.h"

namespace simt {

float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
uint32_t to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
float from_bfloat(uint32_t bits) {
  return from_bits(bits << 16);
}
uint32_t to_bfloat(float x) {
  uint32_t bits = to_bits(x);
  return x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static float small_float(uint32_t bits, int exponent_bits, int fraction_bits) {
  uint32_t top = (1u << exponent_bits) - 1, bias = top >> 1;
  uint32_t sign = bits >> (exponent_bits + fraction_bits) & 1, exponent = bits >> fraction_bits & top;
  uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  float magnitude = exponent ? ldexpf((float)((1u << fraction_bits) + fraction), (int)exponent - (int)bias - fraction_bits)
                             : ldexpf((float)fraction, 1 - (int)bias - fraction_bits);
  return sign ? -magnitude : magnitude;
}
float from_half(uint32_t bits) {
  if ((bits >> 10 & 31) == 31) return from_bits((bits & 0x8000) << 16 | 0x7F800000 | (bits & 1023) << 13);
  return small_float(bits, 5, 10);
}
float from_e4m3(uint32_t bits) {
  return (bits & 0x7F) == 0x7F ? NAN : small_float(bits, 4, 3);
}
float from_e5m2(uint32_t bits) {
  return from_half(bits << 8);
}

int bits_of(Format format) {
  switch (format) {
    case BF16:
    case F16:
      return 16;
    case TF32:
      return 32;
    default:
      return 8;
  }
}
float decode(Format format, uint32_t bits) {
  switch (format) {
    case BF16:
      return from_bfloat(bits);
    case F16:
      return from_half(bits);
    case TF32:
      return from_bits(bits & 0xFFFFE000u);
    case S8:
      return (float)(int8_t)bits;
    case E4M3:
      return from_e4m3(bits);
    case E5M2:
      return from_e5m2(bits);
    default:
      return 0;
  }
}

extern "C" {

// what the host compiler calls to round to bfloat16: the 16 bits come back in a floating-point register
float __truncsfbf2(float x) {
  uint32_t bits = to_bits(x);
  return from_bits(x != x ? bits >> 16 | 64 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float flush(float x) {
  return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
#define APPROXIMATE(NAME, EXPRESSION)                 \
  void simt_##NAME(Site, const Slot* in, Slot* out) { \
    float x = from_bits((uint32_t)in[0]);             \
    if (in[1]) x = flush(x);                          \
    float y = (float)(EXPRESSION);                    \
    out[0] = to_bits(in[1] ? flush(y) : y);           \
  }
// in: x, whether subnormal numbers count as zero
APPROXIMATE(ex2, exp2((double)x))
APPROXIMATE(lg2, log2((double)x))
APPROXIMATE(rcp, 1.0 / x)
APPROXIMATE(rsqrt, 1.0 / sqrt((double)x))
APPROXIMATE(sin, sin((double)x))
APPROXIMATE(cos, cos((double)x))
APPROXIMATE(tanh, tanh((double)x))
// in: x, y, whether subnormal numbers count as zero
void simt_divide(Site, const Slot* in, Slot* out) {
  float y = (float)((double)from_bits((uint32_t)in[0]) / from_bits((uint32_t)in[1]));
  out[0] = to_bits(in[2] ? flush(y) : y);
}

void simt_bfloat_rz(Site, const Slot* in, Slot* out) {
  out[0] = (uint32_t)in[0] >> 16;
}
void simt_float_rz(Site, const Slot* in, Slot* out) {
  double x;
  memcpy(&x, in, 8);
  float y = (float)x;
  if (fabs((double)y) > fabs(x)) y = nextafterf(y, 0);
  out[0] = to_bits(y);
}
void simt_tf32_rna(Site, const Slot* in, Slot* out) {
  auto bits = (uint32_t)in[0];
  if ((bits & 0x7F800000) != 0x7F800000) bits += 0x1000;
  out[0] = bits & 0xFFFFE000u;
}
void simt_half_rz(Site, const Slot* in, Slot* out) {
  float x = from_bits((uint32_t)in[0]);
  uint32_t best = 0;  // the largest half not above |x|: halves are ordered like their bits
  for (uint32_t step = 1 << 14; step; step >>= 1)
    if ((best | step) <= 0x7BFF && from_half(best | step) <= fabsf(x)) best |= step;
  if (x != x)
    best = 0x7FFF;
  else if (std::isinf(x))
    best = 0x7C00;
  out[0] = best | (std::signbit(x) ? 0x8000 : 0);
}
// in: high, low: two numbers become one word
void simt_bfloat_pair(Site, const Slot* in, Slot* out) {
  out[0] = to_bfloat(from_bits((uint32_t)in[0])) << 16 | to_bfloat(from_bits((uint32_t)in[1]));
}
void simt_half_pair(Site, const Slot* in, Slot* out) {
  uint32_t word = 0;
  for (int i = 0; i < 2; i++) {
    _Float16 x = (_Float16)from_bits((uint32_t)in[i]);
    uint16_t bits;
    memcpy(&bits, &x, 2);
    word = word << 16 | bits;
  }
  out[0] = word;
}
// the nearest 8-bit float, of two equally near ones the even one; what is too large becomes the largest finite one
static uint32_t to_small(Format format, float x) {
  if (x != x) return 0x7F;
  uint32_t largest = format == E4M3 ? 0x7E : 0x7B, best = 0;
  double magnitude = fmin(fabs((double)x), decode(format, largest));
  for (uint32_t bits = 1; bits <= largest; bits++) {
    double before = fabs(magnitude - decode(format, best)), now = fabs(magnitude - decode(format, bits));
    if (now < before || (now == before && bits % 2 == 0)) best = bits;
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}
// in: high, low, format
void simt_narrow_pair(Site, const Slot* in, Slot* out) {
  auto format = (Format)in[2];
  out[0] = to_small(format, from_bits((uint32_t)in[0])) << 8 | to_small(format, from_bits((uint32_t)in[1]));
}
// in: two bytes, format
void simt_widen_pair(Site, const Slot* in, Slot* out) {
  uint32_t word = 0;
  for (int i = 1; i >= 0; i--) {
    float value = decode((Format)in[1], in[0] >> 8 * i & 0xFF);
    auto half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, 2);
    word = word << 16 | (value != value ? 0x7FFF : bits);
  }
  out[0] = word;
}

// in: two integers, their bits, whether they are signed, whether the whole product is wanted, or its upper half
void simt_product(Site, const Slot* in, Slot* out) {
  int unused = 64 - (int)in[2];
  unsigned __int128 factors[2];
  for (int i = 0; i < 2; i++)
    factors[i] = in[3] ? (unsigned __int128)((int64_t)(in[i] << unused) >> unused) : in[i] << unused >> unused;
  unsigned __int128 product = factors[0] * factors[1];
  int bits = (int)in[2];
  out[0] = in[4] ? (Slot)product & ~0ull >> (bits < 32 ? 64 - 2 * bits : 0) : (Slot)(product >> bits) << unused >> unused;
}
// in: three words, and the table of what their bits give together
void simt_lop3(Site, const Slot* in, Slot* out) {
  uint32_t word = 0;
  for (int i = 0; i < 32; i++) {
    Slot row = (in[0] >> i & 1) << 2 | (in[1] >> i & 1) << 1 | (in[2] >> i & 1);
    word |= (uint32_t)(in[3] >> row & 1) << i;
  }
  out[0] = word;
}
// in: two words, and the byte of the eight that each byte of the result is, or whose sign it repeats
void simt_prmt(Site, const Slot* in, Slot* out) {
  Slot bytes = (in[1] << 32) | (uint32_t)in[0];
  uint32_t word = 0;
  for (int i = 0; i < 4; i++) {
    Slot choice = in[2] >> 4 * i & 15, byte = bytes >> 8 * (choice & 7) & 0xFF;
    if (choice & 8) byte = byte & 0x80 ? 0xFF : 0;
    word |= (uint32_t)byte << 8 * i;
  }
  out[0] = word;
}

void simt_tid_x(Site, const Slot*, Slot* out) {
  out[0] = current;
}
void simt_ctaid(Site, const Slot* in, Slot* out) {
  out[0] = block[in[0]];
}
void simt_nctaid(Site, const Slot* in, Slot* out) {
  out[0] = grid[in[0]];
}

}  // extern "C"

// Conversions round to nearest (n), down (d), up (u) or toward zero (z).
template <class Int, class Float>
static Int to_integer(Float x, char mode) {  // saturates; NaN as the PTX ISA says of cvt
  using Limits = std::numeric_limits<Int>;
  if (x != x) return sizeof(Int) + sizeof(Float) == 8 ? 0 : (Int)((uint64_t)1 << (8 * sizeof(Int) - 1));
  Float whole = mode == 'n' ? rint(x) : mode == 'd' ? floor(x) : mode == 'u' ? ceil(x) : trunc(x);
  return whole >= (Float)Limits::max() ? Limits::max() : whole <= (Float)Limits::min() ? Limits::min() : (Int)whole;
}
template <class Float, class From>
static Float to_float(From x, char mode) {
  using Exact = std::conditional_t<std::is_integral_v<From>, __int128, double>;
  Float near = (Float)x, infinity = std::numeric_limits<Float>::infinity();
  bool down = mode == 'd' || (mode == 'z' && x > 0), up = mode == 'u' || (mode == 'z' && x < 0);
  if (down && (Exact)near > (Exact)x) return std::nextafter(near, -infinity);
  if (up && (Exact)near < (Exact)x) return std::nextafter(near, infinity);
  return near;
}
static double upper_half(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  bits &= ~(uint64_t)0xFFFFFFFF;
  memcpy(&x, &bits, 8);
  return fabs(x) < std::numeric_limits<double>::min() ? copysign(0.0, x) : x;
}

extern "C" {

double __nv_rcp64h(double x) {
  return upper_half(1 / upper_half(x));
}
double __nv_rsqrt(double x) {
  return 1 / sqrt(x);
}
float __nv_rsqrtf(float x) {
  return (float)(1 / sqrt((double)x));
}
float __nv_fast_fdividef(float x, float y) {
  return x / y;
}
float __nv_fast_powf(float x, float y) {
  return powf(x, y);
}
// clang-format off
#define FAST(NAME) float __nv_fast_##NAME##f(float x) { return (float)NAME((double)x); }
FAST(exp) FAST(log) FAST(log2) FAST(log10) FAST(sin) FAST(cos) FAST(tan) FAST(tanh)
#define LIBDEVICE(NAME)                            \
  double __nv_##NAME(double x) { return NAME(x); } \
  float __nv_##NAME##f(float x) { return (float)NAME((double)x); }
LIBDEVICE(exp) LIBDEVICE(exp2) LIBDEVICE(log) LIBDEVICE(log2) LIBDEVICE(log10) LIBDEVICE(log1p) LIBDEVICE(expm1)
LIBDEVICE(sin) LIBDEVICE(cos) LIBDEVICE(tan) LIBDEVICE(asin) LIBDEVICE(acos) LIBDEVICE(atan)
LIBDEVICE(sinh) LIBDEVICE(cosh) LIBDEVICE(tanh) LIBDEVICE(erf) LIBDEVICE(erfc) LIBDEVICE(cbrt)
#define CONVERSION(TO, FROM, NAME, FUNCTION)                              \
  TO __nv_##NAME##_rn(FROM x) { return FUNCTION<TO>(x, 'n'); } \
  TO __nv_##NAME##_rd(FROM x) { return FUNCTION<TO>(x, 'd'); } \
  TO __nv_##NAME##_ru(FROM x) { return FUNCTION<TO>(x, 'u'); } \
  TO __nv_##NAME##_rz(FROM x) { return FUNCTION<TO>(x, 'z'); }
#define CONVERSIONS(FLOAT, INT, NAME)                    \
  CONVERSION(INT, FLOAT, FLOAT##2##NAME, to_integer) \
  CONVERSION(FLOAT, INT, NAME##2##FLOAT, to_float)
CONVERSIONS(float, int32_t, int) CONVERSIONS(float, uint32_t, uint)
CONVERSIONS(float, int64_t, ll) CONVERSIONS(float, uint64_t, ull)
CONVERSIONS(double, int32_t, int) CONVERSIONS(double, uint32_t, uint)
CONVERSIONS(double, int64_t, ll) CONVERSIONS(double, uint64_t, ull)
CONVERSION(float, double, double2float, to_float)
// clang-format on
#define LIBDEVICE2(NAME)                   \
  double __nv_##NAME(double x, double y) { \
    return NAME(x, y);                     \
  }                                        \
  float __nv_##NAME##f(float x, float y) { \
    return NAME##f(x, y);                  \
  }
    // clang-format off
LIBDEVICE2(fmod) LIBDEVICE2(pow) LIBDEVICE2(atan2)
// clang-format on

}  // extern "C"
}  // namespace simt
