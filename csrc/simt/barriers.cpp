// Barriers: of a warp, of the block by number (bar.sync, bar.arrive), in shared memory (mbarrier), and fences.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simt.h"

namespace simt {

namespace {

// ---- barriers of the block: 16 of them, each for a number of threads ----

struct Barrier {
  int arrived, expected;
  Order order;
  std::vector<int> waiting;
  Site warp_site[MAX_THREADS / LANES];  // where a warp's first lane came, 0 if none has
  int warp_lanes[MAX_THREADS / LANES];
};
Barrier barriers[16];

void clear(Barrier& barrier) {
  barrier.arrived = barrier.expected = 0;
  barrier.waiting.clear();
  barrier.order.reset();
  memset(barrier.warp_site, 0, sizeof barrier.warp_site);
  memset(barrier.warp_lanes, 0, sizeof barrier.warp_lanes);
}

void come(Site site, unsigned number, int expected, bool waits) {
  if (number >= 16) fail("barrier", site, "barrier %u does not exist: there are 16", number);
  if (expected % LANES) fail("barrier", site, "barrier %u is for %d threads, which is no multiple of a warp", number, expected);
  Barrier& barrier = barriers[number];
  int warp = current / LANES;
  // .aligned: all lanes of a warp execute the same instruction
  if (barrier.warp_lanes[warp] && barrier.warp_site[warp] != site)
    fail_two("divergence", site, barrier.warp_site[warp], "lanes of warp %d meet at different barriers", warp);
  barrier.warp_site[warp] = site;
  if (++barrier.warp_lanes[warp] == LANES) barrier.warp_lanes[warp] = 0;
  if (barrier.arrived && barrier.expected != expected)
    fail("barrier", site, "barrier %u is for %d threads here, and for %d where others wait", number, expected,
         barrier.expected);
  barrier.expected = expected;
  release(barrier.order);
  if (waits) barrier.waiting.push_back(current);
  if (++barrier.arrived < expected) {
    if (waits) give_way(Wait::BARRIER, site, number);
    return;
  }
  for (int thread : barrier.waiting) {
    acquire(thread, barrier.order);
    if (thread != current) wake(thread);
  }
  clear(barrier);
}

// ---- barriers in shared memory ----

// A warp has seen that a phase is complete, when it had come so far.
struct Seen {
  int warp;
  Clock clock;
  Site site;
};

struct Mbarrier {
  uint64_t address;
  bool live;
  int64_t expected, pending, bytes;
  Clock phase;        // how many have completed
  Order order, done;  // of the phase that runs, and of the last that completed
  std::vector<int> waiting;
  std::vector<Seen> seen;  // the last completed phase
};
std::vector<Mbarrier> mbarriers;

void complete_if_done(Mbarrier& barrier, Site site) {
  if (barrier.pending || barrier.bytes) return;
  for (const Seen& seen : barrier.seen)
    if (barrier.order.met.of[seen.warp] < seen.clock)
      fail_two("lapped", site, seen.site,
               "the barrier at offset %llu of shared memory may complete its next phase before warp %d has seen the last one "
               "complete, and then waits for another of that parity: nothing orders the two",
               (unsigned long long)(barrier.address - SHARED_BASE), seen.warp);
  barrier.seen.clear();
  barrier.phase++;
  barrier.pending = barrier.expected;
  std::swap(barrier.order, barrier.done);
  barrier.order.reset();
  for (int thread : barrier.waiting) wake(thread);
  barrier.waiting.clear();
}

void arrive(Mbarrier& barrier, int64_t arrivals, Site site) {
  if (arrivals > barrier.pending)
    fail("barrier", site, "%lld arrivals at the barrier at offset %llu of shared memory, which expects %lld more",
         (long long)arrivals, (unsigned long long)(barrier.address - SHARED_BASE), (long long)barrier.pending);
  barrier.pending -= arrivals;
  complete_if_done(barrier, site);
}

// An operation on a barrier reads its 8 bytes: it must come after the initialisation and before the memory is used otherwise.
Mbarrier& use(uint64_t address, Site site) {
  int index = find_mbarrier(address, site);
  touch_shared(address, 8, Access::READ, (Agent)current, now(), self().order, site);
  return mbarriers[index];
}

}  // namespace

void reset_barriers() {
  for (Barrier& barrier : barriers) clear(barrier);
}

void describe_barrier(uint64_t what, char* text, size_t size) {
  const Barrier& barrier = barriers[what];
  snprintf(text, size, "at barrier %llu, where %d of %d threads are", (unsigned long long)what, barrier.arrived,
           barrier.expected);
}

void reset_mbarriers() {
  mbarriers.clear();
}

int find_mbarrier(uint64_t address, Site site) {
  check_shared_range(address, 8, 8, site);
  for (size_t i = 0; i < mbarriers.size(); i++)
    if (mbarriers[i].address == address && mbarriers[i].live) return (int)i;
  fail("barrier", site, "no barrier is initialised at offset %llu of shared memory",
       (unsigned long long)(address - SHARED_BASE));
}

Clock mbarrier_phase(int index) {
  return mbarriers[index].phase;
}

void mbarrier_copied(int index, Clock clock, int64_t bytes, const Met& issued, Site site) {
  Mbarrier& barrier = mbarriers[index];
  Agent agent = mbarrier_agent(index);
  barrier.order.seen[agent] = std::max(barrier.order.seen[agent], clock);
  barrier.order.fenced[agent] = std::max(barrier.order.fenced[agent], clock);
  barrier.order.met.join(issued);
  barrier.bytes -= bytes;
  complete_if_done(barrier, site);
}

void describe_mbarrier(uint64_t what, char* text, size_t size) {
  const Mbarrier& barrier = mbarriers[what >> 1];
  snprintf(text, size,
           "for parity %d of the barrier at offset %llu of shared memory (phase %u, %lld arrivals, %lld bytes missing)",
           (int)(what & 1), (unsigned long long)(barrier.address - SHARED_BASE), barrier.phase, (long long)barrier.pending,
           (long long)barrier.bytes);
}

extern "C" {

// in: number, threads (0: all)
void simt_bar_sync(Site site, const Slot* in, Slot*) {
  if (off(site)) return;
  come(site, (unsigned)in[0], in[1] ? (int)in[1] : count, true);
}
void simt_bar_arrive(Site site, const Slot* in, Slot*) {
  if (off(site)) return;
  come(site, (unsigned)in[0], (int)in[1], false);
}

static void warp_sync(Collected&, const Slot*, Site) {
  static Order all;
  all.reset();
  int first = current / LANES * LANES;
  for (int t = first; t < first + LANES; t++) {
    all.join(threads[t].order);
    threads[t].order.seen[t]++;
  }
  for (int t = first; t < first + LANES; t++) threads[t].order.join(all);
}
void simt_bar_warp(Site site, const Slot* in, Slot* out) {
  if (off(site)) return;
  collective(site, warp_sync, in, 1, out, 0);
}

void simt_fence_proxy(Site site, const Slot*, Slot*) {
  if (!off(site)) proxy_fence();
}
void simt_nothing(Site, const Slot*, Slot*) {}

// in: address, count
void simt_mbarrier_init(Site site, const Slot* in, Slot*) {
  uint64_t address = in[0];
  check_shared_range(address, 8, 8, site);
  touch_shared(address, 8, Access::WRITE, (Agent)current, now(), self().order, site);
  for (Mbarrier& barrier : mbarriers)
    if (barrier.address == address && barrier.live)
      fail("barrier", site, "the barrier at offset %llu of shared memory is initialised again before it is invalidated",
           (unsigned long long)(address - SHARED_BASE));
  if (mbarriers.size() == MAX_MBARRIERS) fail("limit", site, "more than %d barriers in shared memory", MAX_MBARRIERS);
  Mbarrier barrier{};
  barrier.address = address, barrier.live = true;
  barrier.expected = barrier.pending = (int64_t)in[1];
  barrier.order.reset(), barrier.done.reset();
  mbarriers.push_back(barrier);
}
void simt_mbarrier_inval(Site site, const Slot* in, Slot*) {
  int index = find_mbarrier(in[0], site);
  touch_shared(in[0], 8, Access::WRITE, (Agent)current, now(), self().order, site);
  mbarriers[index].live = false;
}
// in: address, arrivals, bytes that will come; out: the state, which nothing here reads
void simt_mbarrier_arrive(Site site, const Slot* in, Slot* out) {
  out[0] = 0;
  if (off(site)) return;
  Mbarrier& barrier = use(in[0], site);
  barrier.bytes += (int64_t)in[2];
  release(barrier.order);
  arrive(barrier, (int64_t)in[1], site);
}
// in: address, parity; waits until the phase of that parity has completed, and always gives true
void simt_mbarrier_wait(Site site, const Slot* in, Slot* out) {
  out[0] = 1;
  if (off(site)) return;
  use(in[0], site);
  int index = find_mbarrier(in[0], site);
  while ((mbarriers[index].phase & 1) == (in[1] & 1)) {
    mbarriers[index].waiting.push_back(current);
    give_way(Wait::MBARRIER, site, (uint64_t)index << 1 | (in[1] & 1));
  }
  acquire(current, mbarriers[index].done);
  std::vector<Seen>& seen = mbarriers[index].seen;
  int warp = current / LANES;
  if (std::none_of(seen.begin(), seen.end(), [&](const Seen& other) { return other.warp == warp; }))
    seen.push_back({warp, met().of[warp], site});
}

}  // extern "C"
}  // namespace simt
