// What the 32 lanes of a warp do together: shuffles, votes, matrices in shared memory, and products of matrices in registers.
#include <algorithm>
#include <cstring>

#include "simt.h"

namespace simt {

namespace {

struct Warp {
  Collected slots;
  Site site;
  int arrived;
};
Warp warps[MAX_THREADS / LANES];

}  // namespace

void reset_warps() {
  for (Warp& warp : warps) warp.arrived = 0;
}

void collective(Site site, Collective action, const Slot* in, int inputs, Slot* out, int outputs, const Slot* constants) {
  Warp& warp = warps[current / LANES];
  int lane = current % LANES;
  if (warp.arrived && warp.site != site)
    fail_two("divergence", site, warp.site, "lanes of warp %d meet at different instructions of the whole warp",
             current / LANES);
  warp.site = site;
  memcpy(warp.slots.in[lane], in, sizeof(Slot) * inputs);
  if (++warp.arrived == LANES) {
    action(warp.slots, constants, site);
    warp.arrived = 0;
    int first = current / LANES * LANES;
    for (int t = first; t < first + LANES; t++)
      if (t != current) wake(t);
  } else {
    give_way(Wait::WARP, site);
  }
  memcpy(out, warp.slots.out[lane], sizeof(Slot) * outputs);
}

namespace {

enum { BFLY, UP, DOWN, IDX };

// slots: mask, value, lane, clamp (PTX ISA, shfl.sync)
void shuffle(Collected& w, const Slot* constants, Site) {
  for (int lane = 0; lane < LANES; lane++) {
    int by = (int)(w.in[lane][2] & 31), clamp = (int)(w.in[lane][3] & 31), segment = (int)(w.in[lane][3] >> 8 & 31);
    int top = (lane & segment) | (clamp & ~segment), bottom = lane & segment, from = lane;
    bool inside = true;
    switch (constants[0]) {
      case BFLY:
        from = lane ^ by, inside = from <= top;
        break;
      case UP:
        from = lane - by, inside = from >= top;
        break;
      case DOWN:
        from = lane + by, inside = from <= top;
        break;
      case IDX:
        from = bottom | (by & ~segment), inside = from <= top;
        break;
    }
    w.out[lane][0] = w.in[inside ? from : lane][1];
    w.out[lane][1] = inside;
  }
}

enum { VOTE_ANY, VOTE_ALL, VOTE_UNI, VOTE_BALLOT };
void vote(Collected& w, const Slot* constants, Site) {
  uint32_t ballot = 0;
  for (int lane = 0; lane < LANES; lane++) ballot |= (uint32_t)(w.in[lane][1] & 1) << lane;
  Slot result = ballot;
  if (constants[0] == VOTE_ANY) result = ballot != 0;
  if (constants[0] == VOTE_ALL) result = ballot == ~0u;
  if (constants[0] == VOTE_UNI) result = ballot == ~0u || ballot == 0;
  for (int lane = 0; lane < LANES; lane++) w.out[lane][0] = result;
}

// The first lane is the one that is elected.
void elect(Collected& w, const Slot*, Site) {
  for (int lane = 0; lane < LANES; lane++) {
    w.out[lane][0] = 0;
    w.out[lane][1] = lane == 0;
  }
}

// ldmatrix, stmatrix: lane 8 j + i gives the address of row i of matrix j; lane l holds elements 2 (l % 4), + 1 of row l / 4,
// with .trans of column l / 4
void touch_rows(Collected& w, int matrices, Access access, Site site) {
  int warp = current / LANES * LANES;
  for (int lane = 0; lane < 8 * matrices; lane++) {
    check_shared_range(w.in[lane][0], 16, 16, site);
    const Thread& thread = threads[warp + lane];
    touch_shared(w.in[lane][0], 16, access, (Agent)(warp + lane), thread.order.seen[warp + lane], thread.order, site);
  }
}
uint16_t* row_of(Collected& w, int matrix, int row) {
  return reinterpret_cast<uint16_t*>(w.in[8 * matrix + row][0]);
}

void ldmatrix(Collected& w, const Slot* constants, Site site) {
  int matrices = (int)constants[0];
  bool transposed = constants[1];
  touch_rows(w, matrices, Access::READ, site);
  for (int j = 0; j < matrices; j++)
    for (int lane = 0; lane < LANES; lane++) {
      int row = lane / 4, column = 2 * (lane % 4);
      uint32_t low = transposed ? row_of(w, j, column)[row] : row_of(w, j, row)[column];
      uint32_t high = transposed ? row_of(w, j, column + 1)[row] : row_of(w, j, row)[column + 1];
      w.out[lane][j] = low | high << 16;
    }
}

void stmatrix(Collected& w, const Slot* constants, Site site) {
  int matrices = (int)constants[0];
  bool transposed = constants[1];
  touch_rows(w, matrices, Access::WRITE, site);
  for (int j = 0; j < matrices; j++)
    for (int lane = 0; lane < LANES; lane++) {
      int row = lane / 4, column = 2 * (lane % 4);
      uint32_t word = (uint32_t)w.in[lane][1 + j];
      (transposed ? row_of(w, j, column)[row] : row_of(w, j, row)[column]) = (uint16_t)word;
      (transposed ? row_of(w, j, column + 1)[row] : row_of(w, j, row)[column + 1]) = (uint16_t)(word >> 16);
    }
}

// ---- mma.sync.m16n8k*: fragments as in the figures of the PTX ISA, 9.7.14.5 ----

// constants: k, format of a and b, whether sums are integers (2: that stop at the ends of their range), whether
// accumulators are pairs of halves
void mma(Collected& w, const Slot* constants, Site) {
  static double a[16][32], b[32][8];
  int k = (int)constants[0];
  auto format = (Format)constants[1];
  bool integer = constants[2], half = constants[3];
  int bits = bits_of(format), per = 32 / bits;
  int a_words = 16 * k * bits / 32 / LANES, b_words = 8 * k * bits / 32 / LANES;
  uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
  for (int lane = 0; lane < LANES; lane++) {
    int group = lane / 4, quad = lane % 4;
    for (int r = 0; r < a_words; r++)
      for (int e = 0; e < per; e++)
        a[group + 8 * (r % 2)][quad * per + e + r / 2 * (4 * per)] =
            decode(format, (uint32_t)w.in[lane][r] >> bits * e % 32 & mask);
    for (int r = 0; r < b_words; r++)
      for (int e = 0; e < per; e++)
        b[quad * per + e + r * (4 * per)][group] = decode(format, (uint32_t)w.in[lane][a_words + r] >> bits * e % 32 & mask);
  }
  for (int lane = 0; lane < LANES; lane++)
    for (int r = 0; r < 4; r++) {
      int row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      double sum = 0;
      for (int i = 0; i < k; i++) sum += a[row][i] * b[i][column];
      auto c = (uint32_t)w.in[lane][a_words + b_words + (half ? r / 2 : r)];
      if (integer) {
        int64_t total = (int64_t)(int32_t)c + (int64_t)sum;
        if (constants[2] == 2) total = std::min<int64_t>(std::max<int64_t>(total, INT32_MIN), INT32_MAX);
        w.out[lane][r] = (uint32_t)total;
      } else if (half) {
        _Float16 d = (_Float16)((double)from_half(c >> 16 * (r % 2) & 0xFFFF) + sum);
        uint16_t word;
        memcpy(&word, &d, 2);
        if (r % 2 == 0) w.out[lane][r / 2] = 0;
        w.out[lane][r / 2] |= (Slot)word << 16 * (r % 2);
      } else {
        w.out[lane][r] = to_bits((float)((double)from_bits(c) + sum));
      }
    }
}

}  // namespace

extern "C" {

// in: mask, value, lane, clamp, mode
void simt_shuffle(Site site, const Slot* in, Slot* out) {
  collective(site, shuffle, in, 4, out, 2, in + 4);
}
// in: mask, predicate, mode
void simt_vote(Site site, const Slot* in, Slot* out) {
  collective(site, vote, in, 2, out, 1, in + 2);
}
// in: mask
void simt_elect(Site site, const Slot* in, Slot* out) {
  collective(site, elect, in, 1, out, 2, in + 1);
}
// in: address, number of matrices, transposed
void simt_ldmatrix(Site site, const Slot* in, Slot* out) {
  collective(site, ldmatrix, in, 1, out, (int)in[1], in + 1);
}
// in: address, words..., number of matrices, transposed
void simt_stmatrix1(Site site, const Slot* in, Slot* out) {
  collective(site, stmatrix, in, 2, out, 0, in + 2);
}
void simt_stmatrix2(Site site, const Slot* in, Slot* out) {
  collective(site, stmatrix, in, 3, out, 0, in + 3);
}
void simt_stmatrix4(Site site, const Slot* in, Slot* out) {
  collective(site, stmatrix, in, 5, out, 0, in + 5);
}
// in: operands, k, format, integer, half
void simt_mma10(Site site, const Slot* in, Slot* out) {
  collective(site, mma, in, 10, out, 4, in + 10);
}
void simt_mma8(Site site, const Slot* in, Slot* out) {
  collective(site, mma, in, 8, out, 2, in + 8);
}

}  // extern "C"
}  // namespace simt
