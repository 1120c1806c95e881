// A stand-in for AMX's instructions, exact to Intel's manual (Instruction Set Extensions Programming Reference, chapter 3): the
// state of one thread, and what each instruction does to it. What the CPU would refuse ends the process with a message.
#include <immintrin.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum { kTiles = 8, kRows = 16, kRowBytes = 64 };

thread_local struct {
  int configured;
  int rows[kTiles];
  int row_bytes[kTiles];
  uint8_t data[kTiles][kRows][kRowBytes] __attribute__((aligned(64)));
} tiles;

std::atomic<long> products;

void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "AMX would refuse: %s\n", what);
  abort();
}

void check_tile(int tile) {
  check(tiles.configured, "a tile is used that is not configured");
  check(tile >= 0 && tile < kTiles && tiles.rows[tile] > 0, "a tile has no rows");
}

void check_product(int sum, int a, int b) {
  check_tile(sum), check_tile(a), check_tile(b);
  check(sum != a && sum != b && a != b, "two of three tiles are the same");
  check(tiles.rows[sum] == tiles.rows[a], "rows of the sum and of a differ");
  check(tiles.row_bytes[sum] == tiles.row_bytes[b], "columns of the sum and of b differ");
  check(tiles.row_bytes[a] == 4 * tiles.rows[b], "columns of a and rows of b differ");
  ++products;
}

float widened(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

// Elements of even and of odd k are summed apart, by fused multiply-adds from zero on; both sums are added, then the sum to
// what was there. A function of its own: no compiler moves its arithmetic out of where the rounding is set.
[[gnu::noinline]] void add_pairs(int sum, int a, int b) {
  const int columns = tiles.row_bytes[sum] / 4, units = tiles.row_bytes[a] / 4;
  for (int row = 0; row < tiles.rows[sum]; ++row) {
    float even[kRowBytes / 4] = {}, odd[kRowBytes / 4] = {}, total[kRowBytes / 4];
    for (int k = 0; k < units; ++k) {
      uint16_t left[2], right[kRowBytes / 2];
      memcpy(left, tiles.data[a][row] + 4 * k, sizeof left);
      memcpy(right, tiles.data[b][k], sizeof right);
      for (int n = 0; n < columns; ++n) {
        even[n] = std::fmaf(widened(left[0]), widened(right[2 * n]), even[n]);
        odd[n] = std::fmaf(widened(left[1]), widened(right[2 * n + 1]), odd[n]);
      }
    }
    memcpy(total, tiles.data[sum][row], sizeof total);
    for (int n = 0; n < columns; ++n) total[n] += even[n] + odd[n];
    memcpy(tiles.data[sum][row], total, sizeof total);
  }
}

}  // namespace

extern "C" {

int stand_in_is_configured(void) {
  return tiles.configured;
}

// Returns how many products of tiles there have been since it was last asked.
long stand_in_products(void) {
  return products.exchange(0);
}

void stand_in_ldtilecfg(const uint8_t* table) {
  check(table[0] == 1, "a palette other than 1");
  memset(&tiles, 0, sizeof tiles);
  for (int i = 2; i < 16; ++i) check(table[i] == 0, "reserved bytes that are not 0");
  for (int i = 0; i < kTiles; ++i) {
    tiles.row_bytes[i] = table[16 + 2 * i] | table[17 + 2 * i] << 8;
    tiles.rows[i] = table[48 + i];
    check(tiles.rows[i] <= kRows && tiles.row_bytes[i] <= kRowBytes, "a tile that is too large");
    check((tiles.rows[i] == 0) == (tiles.row_bytes[i] == 0), "a tile with rows or columns alone");
  }
  tiles.configured = 1;
}

void stand_in_tilerelease(void) {
  memset(&tiles, 0, sizeof tiles);
}

void stand_in_tilezero(int8_t tile) {
  check_tile(tile);
  memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
}

void stand_in_tileloadd64(int8_t tile, const uint8_t* from, int64_t stride) {
  check_tile(tile);
  memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
  for (int row = 0; row < tiles.rows[tile]; ++row) memcpy(tiles.data[tile][row], from + row * stride, tiles.row_bytes[tile]);
}

void stand_in_tilestored64(int8_t tile, uint8_t* to, int64_t stride) {
  check_tile(tile);
  for (int row = 0; row < tiles.rows[tile]; ++row) memcpy(to + row * stride, tiles.data[tile][row], tiles.row_bytes[tile]);
}

// Subnormal numbers count as zero, in operands and results, and results are rounded to the nearest, ties to even.
void stand_in_tdpbf16ps(int8_t sum, int8_t a, int8_t b) {
  check_product(sum, a, b);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0x9fc0);  // flush to zero, denormals are zero, all exceptions masked
  add_pairs(sum, a, b);
  _mm_setcsr(before);
}

// Sums of four products of signed bytes, which wrap in 32 bits.
void stand_in_tdpbssd(int8_t sum, int8_t a, int8_t b) {
  check_product(sum, a, b);
  const int columns = tiles.row_bytes[sum] / 4, units = tiles.row_bytes[a] / 4;
  for (int row = 0; row < tiles.rows[sum]; ++row) {
    uint32_t total[kRowBytes / 4];
    memcpy(total, tiles.data[sum][row], sizeof total);
    for (int k = 0; k < units; ++k) {
      for (int n = 0; n < columns; ++n) {
        for (int i = 0; i < 4; ++i) {
          total[n] += (uint32_t)((int8_t)tiles.data[a][row][4 * k + i] * (int8_t)tiles.data[b][k][4 * n + i]);
        }
      }
    }
    memcpy(tiles.data[sum][row], total, sizeof total);
  }
}

}  // extern "C"
