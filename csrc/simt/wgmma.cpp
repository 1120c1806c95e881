// Products of matrices by a warpgroup, which run beside its threads (PTX ISA, wgmma.mma_async).
//
// While a product is in flight its accumulators hold tokens, not numbers. A wait that names them gives the numbers; ordinary
// code that meets a token reads an accumulator too early.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "simt.h"

namespace simt {

namespace {

constexpr uint32_t TOKEN = 0x7FA00000, TOKEN_MASK = 0xFFE00000;  // a signalling NaN: arithmetic never gives one
constexpr uint32_t MAX_SETS = 1 << 13;

struct Shape {
  int n, k;
  Format a_format, b_format;
  int kind;  // of accumulators: 0 float, 1 pairs of halves, 2 integers
  bool a_in_registers, trans_a, trans_b;
  int scale_a, scale_b;
  bool accumulate;
  uint64_t a, b;  // descriptors
  int registers() const { return kind == 1 ? n / 4 : n / 2; }
};

struct Accumulators {
  int registers = 0;
  uint32_t last_group = 0;
  std::vector<uint32_t> values;  // [thread][register]
};

struct Product {
  Shape shape;
  Site site;
  uint32_t group, set;
  int deposits = 0;
  int warp_deposits[4] = {};
  Met met;  // of the warps that have issued it
  bool done = false;
  std::vector<uint32_t> a;  // [thread][4]
};

struct Warpgroup {
  std::deque<Product> products;  // in order, those done in front
  uint64_t first = 0;            // the number of products.front()
  std::vector<std::unique_ptr<Accumulators>> sets;
  uint64_t next[WARPGROUP];       // the product that each thread issues next
  uint32_t groups[WARPGROUP];     // how many it has committed
  uint32_t completed[WARPGROUP];  // how many of them it knows to be complete
  bool fenced[WARPGROUP];
  Met met;  // of its warps when they issued what all of them have
};
Warpgroup warpgroups[MAX_THREADS / WARPGROUP];

Warpgroup& mine() {
  return warpgroups[current / WARPGROUP];
}
int rank() {
  return current % WARPGROUP;
}

// ---- operands in shared memory (PTX ISA, matrix-descriptor; strides count in 16 bytes) ----

struct Operand {
  uint64_t start, leading, stride;
  int pitch;  // bytes of a swizzled row: 128, 64, 32; 16 without swizzle

  explicit Operand(uint64_t descriptor)
      : start((descriptor & 0x3FFF) << 4), leading((descriptor >> 16 & 0x3FFF) << 4), stride((descriptor >> 32 & 0x3FFF) << 4) {
    static const int pitches[] = {16, 128, 64, 32};
    pitch = pitches[descriptor >> 62];
  }
  uint64_t swizzled(uint64_t offset) const {
    uint64_t address = WINDOW + offset;
    int mask = pitch == 128 ? 7 : pitch == 64 ? 3 : pitch == 32 ? 1 : 0;
    return address ^ (address >> 7 & mask) << 4;
  }
  // 16 bytes of row `row`, from byte 16 `chunk` on, of an operand that is contiguous along k
  uint64_t along_k(int row, int chunk) const {
    if (pitch == 16) return swizzled(start + row / 8 * stride + row % 8 * 16 + chunk * leading);
    return swizzled(start + row / 8 * stride + row % 8 * pitch + chunk * 16);
  }
  // 8 elements of step `k`, from element 8 `chunk` on, of an operand that is contiguous along m or n
  uint64_t across(int k, int chunk, Site site) const {
    if (pitch == 16) fail("wgmma", site, "transposed operands without swizzle are not modelled");
    int chunks = pitch / 16;
    return swizzled(start + chunk / chunks * leading + k / 8 * stride + k % 8 * pitch + chunk % chunks * 16);
  }
  // Calls `visit(address)` for the 16-byte chunks of rows [first, first + rows).
  template <typename Visit>
  void chunks(int first, int rows, int k, int bits, bool transposed, Site site, Visit visit) const {
    if (transposed) {
      for (int step = 0; step < k; step++)
        for (int chunk = first / 8; chunk < (first + rows) / 8; chunk++) visit(across(step, chunk, site), step, chunk);
    } else {
      for (int row = first; row < first + rows; row++)
        for (int chunk = 0; chunk < k * bits / 128; chunk++) visit(along_k(row, chunk), row, chunk);
    }
  }
  // Reads rows x k numbers: into[row * 32 + step].
  void read(float* into, int rows, int k, Format format, bool transposed, Site site) const {
    int bits = bits_of(format), per = 128 / bits;
    uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
    chunks(0, rows, k, bits, transposed, site, [&](uint64_t address, int outer, int chunk) {
      for (int e = 0; e < per; e++) {
        uint32_t word = 0;
        memcpy(&word, reinterpret_cast<void*>(address + e * bits / 8), bits / 8);
        float value = decode(format, word & mask);
        if (transposed)
          into[(chunk * 8 + e) * 32 + outer] = value;
        else
          into[outer * 32 + chunk * per + e] = value;
      }
    });
  }
};

void evaluate(Warpgroup& group, Product& product) {
  const Shape& shape = product.shape;
  static float a[64 * 32], b[256 * 32];
  static double sums[64][256], b_columns[32][256];
  if (shape.a_in_registers) {
    int bits = bits_of(shape.a_format), per = 32 / bits;
    uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
    for (int t = 0; t < WARPGROUP; t++)
      for (int r = 0; r < 4; r++)
        for (int e = 0; e < per; e++)
          a[(t / 32 * 16 + t % 32 / 4 + 8 * (r % 2)) * 32 + t % 4 * per + e + r / 2 * 4 * per] =
              decode(shape.a_format, product.a[t * 4 + r] >> bits * e % 32 & mask);
  } else {
    Operand(shape.a).read(a, 64, shape.k, shape.a_format, shape.trans_a, product.site);
  }
  Operand(shape.b).read(b, shape.n, shape.k, shape.b_format, shape.trans_b, product.site);
  double scale = shape.scale_a * shape.scale_b;
  for (int n = 0; n < shape.n; n++)
    for (int k = 0; k < shape.k; k++) b_columns[k][n] = b[n * 32 + k] * scale;
  for (int m = 0; m < 64; m++) {
    std::fill(sums[m], sums[m] + shape.n, 0.0);
    for (int k = 0; k < shape.k; k++) {
      double x = a[m * 32 + k];
      for (int n = 0; n < shape.n; n++) sums[m][n] += x * b_columns[k][n];
    }
  }
  Accumulators& set = *group.sets[product.set % group.sets.size()];
  int registers = shape.registers();
  for (int t = 0; t < WARPGROUP; t++)
    for (int i = 0; i < shape.n / 2; i++) {
      double sum = sums[t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2)][8 * (i / 4) + 2 * (t % 4) + i % 2];
      if (shape.kind == 1) {
        uint32_t& word = set.values[t * registers + i / 2];
        float c = shape.accumulate ? from_half(word >> 16 * (i % 2) & 0xFFFF) : 0;
        _Float16 d = (_Float16)(c + sum);
        uint16_t half;
        memcpy(&half, &d, 2);
        word = (word & ~(0xFFFFu << 16 * (i % 2))) | (uint32_t)half << 16 * (i % 2);
      } else {
        uint32_t& word = set.values[t * registers + i];
        if (shape.kind == 2)
          word = (shape.accumulate ? word : 0) + (uint32_t)(int32_t)sum;
        else
          word = to_bits((float)((shape.accumulate ? (double)from_bits(word) : 0) + sum));
      }
    }
  product.done = true;
}

void evaluate_before(Warpgroup& group, uint32_t groups) {
  for (Product& product : group.products)
    if (!product.done && product.group < groups) evaluate(group, product);
  while (!group.products.empty() && group.products.front().done &&
         *std::min_element(group.next, group.next + WARPGROUP) > group.first) {
    group.products.pop_front();
    group.first++;
  }
}

bool is_token(uint32_t bits, const Warpgroup& group) {
  return (bits & TOKEN_MASK) == TOKEN && (bits >> 8 & (MAX_SETS - 1)) < group.sets.size() &&
         (int)(bits & 0xFF) < group.sets[bits >> 8 & (MAX_SETS - 1)]->registers;
}

void touch(const Product& product, Site site) {
  const Shape& shape = product.shape;
  Thread& thread = self();
  Agent agent = warpgroup_agent(current / WARPGROUP);
  auto visit = [&](uint64_t address, int, int) {
    check_shared_range(address, 16, 16, site);
    touch_shared(address, 16, Access::ASYNC_READ, agent, product.group + 1, thread.order, site);
  };
  int warp = rank() / LANES;
  if (!shape.a_in_registers)
    Operand(shape.a).chunks(16 * warp, 16, shape.k, bits_of(shape.a_format), shape.trans_a, site, visit);
  Operand(shape.b).chunks(0, shape.n, shape.k, bits_of(shape.b_format), shape.trans_b, site, visit);
}

}  // namespace

void reset_wgmma() {
  for (Warpgroup& group : warpgroups) {
    group.products.clear(), group.sets.clear();
    group.first = 0, group.met = {};
    for (int t = 0; t < WARPGROUP; t++) group.next[t] = 0, group.groups[t] = group.completed[t] = 0, group.fenced[t] = false;
  }
}

void check_exit_wgmma() {
  for (Warpgroup& group : warpgroups)
    for (Product& product : group.products) {
      if (product.deposits < WARPGROUP)
        fail("divergence", product.site, "not all threads of the warpgroup execute this wgmma, %d do", product.deposits);
      if (!product.done && !eager) fail("exit", product.site, "the block ends while this wgmma is in flight");
    }
}

extern "C" {

void simt_wgmma_fence(Site site, const Slot*, Slot*) {
  if (!off(site)) mine().fenced[rank()] = true;
}
// Ordinary code has written registers that the next product reads.
void simt_wgmma_written(Site, const Slot*, Slot*) {
  mine().fenced[rank()] = false;
}

void simt_wgmma_commit(Site site, const Slot*, Slot*) {
  if (!off(site)) mine().groups[rank()]++;
}

// in: n, k, formats of a and b, kind of accumulators, a in registers, a transposed, b transposed, scale of a, of b, whether to
// accumulate, descriptor of b, descriptor or 4 registers of a, accumulators; out: accumulators
void simt_wgmma(Site site, const Slot* in, Slot* out) {
  Warpgroup& group = mine();
  int me = rank();
  Shape shape{(int)in[0], (int)in[1],          (Format)in[2],       (Format)in[3],     (int)in[4], in[5] != 0, in[6] != 0,
              in[7] != 0, (int)(int64_t)in[8], (int)(int64_t)in[9], (in[10] & 1) != 0, in[12],     in[11]};
  if (count % WARPGROUP) fail("wgmma", site, "the block has %d threads, which are no whole warpgroups", count);
  uint64_t number = group.next[me]++;
  bool first = number - group.first == group.products.size();
  if (first) {
    group.products.emplace_back();
    Product& product = group.products.back();
    product.shape = shape, product.site = site, product.group = group.groups[me], product.set = ~0u;
    if (shape.a_in_registers) product.a.resize(WARPGROUP * 4);
  }
  Product& product = group.products[number - group.first];
  if (product.site != site)
    fail_two("divergence", site, product.site, "threads of warpgroup %d meet at different wgmma", current / WARPGROUP);
  if (!shape.a_in_registers && (product.shape.a != shape.a || product.shape.b != shape.b))
    fail("wgmma", site, "threads of warpgroup %d give different descriptors", current / WARPGROUP);
  const Slot* c = in + (shape.a_in_registers ? 16 : 13);
  int registers = shape.registers();
  bool chained = shape.accumulate && is_token((uint32_t)c[0], group);
  if ((!chained || shape.a_in_registers) && !group.fenced[me])
    fail("wgmma fence", site, "thread %d may have used registers of this wgmma, and no wgmma.fence stands between", current);
  uint32_t set = chained ? (uint32_t)c[0] >> 8 & (MAX_SETS - 1) : 0;
  if (product.set == ~0u) {
    if (!chained) {
      set = (uint32_t)group.sets.size();
      if (set == MAX_SETS) fail("limit", site, "more than %u accumulators of wgmma in one block", MAX_SETS);
      group.sets.push_back(std::make_unique<Accumulators>());
      group.sets[set]->registers = registers;
      group.sets[set]->values.resize(WARPGROUP * registers);
    }
    product.set = set;
  } else if (chained && product.set != set) {
    fail("wgmma", site, "threads of warpgroup %d give different accumulators", current / WARPGROUP);
  }
  Accumulators& accumulators = *group.sets[product.set];
  if (accumulators.registers != registers) fail("wgmma", site, "the accumulators are in flight in another shape");
  accumulators.last_group = std::max(accumulators.last_group, product.group);
  for (int r = 0; r < registers; r++) {
    uint32_t token = TOKEN | product.set << 8 | r;
    if (chained && (uint32_t)c[r] != token) fail("wgmma", site, "accumulator %d is in flight in another place", r);
    if (!chained && shape.accumulate) {
      if (is_token((uint32_t)c[r], group)) fail("wgmma", site, "accumulator %d is in flight, accumulator 0 is not", r);
      accumulators.values[me * registers + r] = (uint32_t)c[r];
    }
    out[r] = token;
  }
  if (shape.a_in_registers)
    for (int r = 0; r < 4; r++) product.a[me * 4 + r] = (uint32_t)in[12 + r];
  if (++product.warp_deposits[me / LANES] == LANES) {
    touch(product, site);
    product.met.join(met());
    come_along();
  }
  if (++product.deposits == WARPGROUP) {
    group.met.join(product.met);
    if (eager) evaluate(group, product);
    int base = current - me;
    for (int t = base; t < base + WARPGROUP; t++)
      if (threads[t].wait == Wait::WGMMA) wake(t);
  }
}

// in: groups that may go on
void simt_wgmma_wait(Site site, const Slot* in, Slot*) {
  if (off(site)) return;
  Warpgroup& group = mine();
  int me = rank();
  uint32_t done = group.groups[me] - std::min(group.groups[me], (uint32_t)in[0]);
  auto issued = [&]() {
    for (const Product& product : group.products)
      if (product.group < done && product.deposits < WARPGROUP) return false;
    return true;
  };
  while (!issued()) give_way(Wait::WGMMA, site);
  evaluate_before(group, done);
  met().join(group.met);
  group.completed[me] = std::max(group.completed[me], done);
  Clock& seen = self().order.seen[warpgroup_agent(current / WARPGROUP)];
  seen = std::max(seen, done);
  group.fenced[me] = false;
}

// in: number of registers, the registers that a wait names; out: their numbers where the products are known to be complete
void simt_wgmma_settle(Site, const Slot* in, Slot* out) {
  Warpgroup& group = mine();
  for (int i = 0; i < (int)in[0]; i++) {
    auto bits = (uint32_t)in[i + 1];
    out[i] = in[i + 1];
    if (!is_token(bits, group)) continue;
    const Accumulators& set = *group.sets[bits >> 8 & (MAX_SETS - 1)];
    if (set.last_group < group.completed[rank()]) out[i] = set.values[rank() * set.registers + (bits & 0xFF)];
  }
}

// A register that may be an accumulator is used by ordinary code.
void simt_wgmma_used(uint32_t bits, Site site) {
  if ((bits & TOKEN_MASK) == TOKEN && is_token(bits, mine()))
    fail("accumulator", site, "thread %d reads an accumulator of a wgmma before a wgmma.wait_group that names it", current);
}

}  // extern "C"
}  // namespace simt
