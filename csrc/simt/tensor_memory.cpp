// Bulk copies between global and shared memory: boxes of tensors that a tensor map describes (PTX ISA, cp.async.bulk.tensor).
#include <algorithm>
#include <cstring>

#include "simt.h"

namespace simt {

namespace {

uint64_t swizzled(uint64_t address, int swizzle) {
  int mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  return address ^ (address >> 7 & mask) << 4;
}

struct Box {
  TensorMap map;
  int64_t at[5];
  uint64_t shared;

  int64_t elements() const {
    int64_t n = 1;
    for (int d = 0; d < map.rank; d++) n *= map.box[d];
    return n;
  }
  int bytes() const { return (int)(elements() * map.element); }

  // Calls `visit(shared address, global address or 0 where the box lies outside)` for every element.
  template <typename Visit>
  void walk(Visit visit) const {
    int64_t n = elements();
    for (int64_t i = 0; i < n; i++) {
      int64_t rest = i;
      uint64_t address = map.address;
      bool inside = true;
      for (int d = 0; d < map.rank; d++) {
        int64_t place = at[d] + rest % map.box[d];
        rest /= map.box[d];
        inside &= place >= 0 && place < (int64_t)map.sizes[d];
        address += place * map.strides[d];
      }
      visit(swizzled(shared + i * map.element, map.swizzle), inside ? address : 0);
    }
  }
};

Box make_box(const TensorMap& map, const Slot* coordinates, int rank, uint64_t shared, Site site) {
  Box box;
  box.map = map;
  box.shared = shared;
  if (box.map.rank != rank)
    fail("tensor map", site, "the copy gives %d coordinates, the tensor map has %d dimensions", rank, box.map.rank);
  for (int d = 0; d < rank; d++) box.at[d] = (int32_t)coordinates[d];
  // an illegal instruction on an H100
  if (box.at[0] * box.map.element % 16)
    fail("tensor map", site, "the copy begins at byte %lld of a row, which is no multiple of 16",
         (long long)(box.at[0] * box.map.element));
  int row = box.map.box[0] * box.map.element;
  if (row % 16) fail("tensor map", site, "rows of the box have %d bytes, which is no multiple of 16", row);
  if (box.map.swizzle && row > box.map.swizzle)
    fail("tensor map", site, "rows of the box have %d bytes, more than the %d that are swizzled", row, box.map.swizzle);
  check_shared_range(shared, box.bytes(), 128, site);
  return box;
}

struct Store {
  uint32_t group;
  Site site;
  Box box;
};
std::vector<Store> stores[MAX_THREADS];  // not yet performed

void perform(const Store& store) {
  int element = store.box.map.element;
  store.box.walk([&](uint64_t shared, uint64_t global) {
    if (!global) return;
    check_global(global, element, 1, Access::ASYNC_WRITE, store.site);
    memcpy(reinterpret_cast<void*>(global), reinterpret_cast<void*>(shared), element);
  });
}

}  // namespace

void check_exit_bulk() {
  Thread& thread = self();
  auto& waiting = stores[current];
  if (thread.bulk_open)
    fail("exit", waiting.empty() ? 0 : waiting.back().site, "thread %d returns before it commits this store", current);
  if (thread.bulk_read < thread.bulk_group)
    fail("exit", thread.site, "thread %d returns while a bulk store may still read its shared memory", current);
  for (const Store& store : waiting) perform(store);
  waiting.clear();
}

extern "C" {

// in: target, map, barrier, coordinates ..., number of coordinates after them
static void load(Site site, const Slot* in, int rank) {
  int mbarrier = find_mbarrier(in[2], site);
  Agent agent = mbarrier_agent(mbarrier);
  Clock clock = mbarrier_phase(mbarrier) + 1;
  Box box = make_box(use_tensor_map(in[1], agent, clock, site), in + 3, rank, in[0], site);
  Thread& thread = self();
  touch_shared(in[2], 8, Access::ASYNC_READ, (Agent)current, now(), thread.order, site);
  touch_shared(box.shared, box.bytes(), Access::ASYNC_WRITE, agent, clock, thread.order, site);
  Met issued = met();
  postpone(site, [=]() {
    int element = box.map.element;
    box.walk([&](uint64_t shared, uint64_t global) {
      if (global) {
        check_global(global, element, 1, Access::ASYNC_READ, site);
        memcpy(reinterpret_cast<void*>(shared), reinterpret_cast<void*>(global), element);
      } else {
        memset(reinterpret_cast<void*>(shared), box.map.nan ? 0xFF : 0, element);
      }
    });
    landed(box.shared, box.bytes(), agent, clock);
    mbarrier_copied(mbarrier, clock, box.bytes(), issued, site);
  });
}
// in: map, source, coordinates ...
static void store(Site site, const Slot* in, int rank) {
  Thread& thread = self();
  Agent agent = bulk_agent(current);
  Clock clock = thread.bulk_group + 1;
  Store made{thread.bulk_group, site, make_box(use_tensor_map(in[0], agent, clock, site), in + 2, rank, in[1], site)};
  const TensorMap& map = made.box.map;
  for (int d = 0; d < rank; d++)  // an illegal instruction on an H100
    if (made.box.at[d] < 0) fail("tensor map", site, "the store begins at coordinate %lld", (long long)made.box.at[d]);
  if (map.sizes[0] * map.element % 16 && made.box.at[0] + map.box[0] > (int64_t)map.sizes[0])  // as an H100 does
    fail("tensor map", site, "the store writes whole 16 bytes, beyond the %llu of a row",
         (unsigned long long)(map.sizes[0] * map.element));
  touch_shared(in[1], made.box.bytes(), Access::ASYNC_READ, agent, clock, thread.order, site);
  thread.bulk_open++, thread.site = site;
  if (eager)
    perform(made);
  else
    stores[current].push_back(made);
}
#define RANK(N)                                              \
  void simt_tma_load##N(Site site, const Slot* in, Slot*) {  \
    load(site, in, N);                                       \
  }                                                          \
  void simt_tma_store##N(Site site, const Slot* in, Slot*) { \
    store(site, in, N);                                      \
  }
// clang-format off
RANK(1) RANK(2) RANK(3) RANK(4) RANK(5)
    // clang-format on

    void simt_bulk_commit(Site, const Slot*, Slot*) {
  self().bulk_group++, self().bulk_open = 0;
}
// in: groups that may go on; both that which waits for reads and that which waits for all
void simt_bulk_wait(Site site, const Slot* in, Slot*) {
  if (off(site)) return;
  Thread& thread = self();
  auto& waiting = stores[current];
  uint32_t done = thread.bulk_group - std::min(thread.bulk_group, (uint32_t)in[0]);
  for (const Store& store : waiting)
    if (store.group < done) perform(store);
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(), [&](const Store& store) { return store.group < done; }),
                waiting.end());
  thread.bulk_read = std::max(thread.bulk_read, done);
  if (done) {
    Agent agent = bulk_agent(current);
    thread.order.seen[agent] = std::max(thread.order.seen[agent], (Clock)done);
  }
}

}  // extern "C"

void reset_bulk() {
  for (auto& list : stores) list.clear();
}

}  // namespace simt
