// Finds races, reads of memory that nobody wrote, and generic writes that the asynchronous proxy may not see. It keeps for
// every thread which events of others it has seen, and for every place in shared and global memory who last read and wrote it
// (vector clocks; Flanagan & Freund, FastTrack, 2009).
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "simt.h"

namespace simt {

namespace {

struct Event {
  Clock clock;  // 0: none
  Agent agent;
  Site site;
};

struct Cell {  // one byte of shared memory
  Event write, read;
  int32_t more;  // further reads, none of which is known to another: an index into `lists`, -1 for none
  bool written, in_flight, atomic, async;
};

Cell cells[WINDOW_BYTES];
size_t used;  // cells below it may be touched
std::vector<std::vector<Event>> lists;
int bulk_of[MAX_THREADS], bulk_count;
int mbarriers_in_use;
Met warps[MAX_WARPS];

bool known(const Event& event, const std::vector<Clock>& by) {
  return by[event.agent] >= event.clock;
}

[[noreturn]] void race(const Cell&, const Event& other, bool other_writes, Access access, uint64_t address, Site site,
                       Agent agent) {
  const char* verb = access == Access::READ || access == Access::ASYNC_READ ? "reads" : "writes";
  char first[64];
  snprintf(first, sizeof first, "%s", agent_name(agent));
  fail_two("race", site, other.site, "%s %s byte %llu of shared memory, which %s %s; nothing orders the two", first, verb,
           (unsigned long long)(address - SHARED_BASE), agent_name(other.agent), other_writes ? "wrote" : "read");
}

void add_read(Cell& cell, const Event& event, const Order& order) {
  if (!cell.read.clock || cell.read.agent == event.agent || known(cell.read, order.seen)) {
    cell.read = event;
    if (cell.more < 0) return;
  } else if (cell.more < 0) {
    cell.more = (int32_t)lists.size();
    lists.emplace_back(1, event);
    return;
  } else {
    for (Event& other : lists[cell.more])
      if (other.agent == event.agent) {
        other = event;
        return;
      }
    lists[cell.more].push_back(event);
    return;
  }
  auto& list = lists[cell.more];
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](const Event& other) { return other.agent == event.agent || known(other, order.seen); }),
             list.end());
}

}  // namespace

int agents() {
  return MAX_THREADS / WARPGROUP + count + mbarriers_in_use + bulk_count;
}
// numbers in use are contiguous: threads, warpgroups, then barriers and bulk copies as they come
static int next_agent;
static int mbarrier_agents[MAX_MBARRIERS];
Agent warpgroup_agent(int warpgroup) {
  return (Agent)(count + warpgroup);
}
Agent mbarrier_agent(int index) {
  if (mbarrier_agents[index] < 0) mbarrier_agents[index] = next_agent++, mbarriers_in_use++;
  return (Agent)mbarrier_agents[index];
}
Agent bulk_agent(int thread) {
  if (bulk_of[thread] < 0) {
    if (bulk_count == MAX_BULK) fail("limit", self().site, "more than %d threads issue bulk copies", MAX_BULK);
    bulk_of[thread] = next_agent++, bulk_count++;
  }
  return (Agent)bulk_of[thread];
}

const char* agent_name(Agent agent) {
  static char text[2][64];
  static int turn;
  char* out = text[turn ^= 1];
  if (agent < count) {
    snprintf(out, 64, "thread %d", agent);
    return out;
  }
  if (agent < count + MAX_THREADS / WARPGROUP) {
    snprintf(out, 64, "a wgmma of warpgroup %d", agent - count);
    return out;
  }
  for (int thread = 0; thread < count; thread++)
    if (bulk_of[thread] == agent) {
      snprintf(out, 64, "a bulk copy of thread %d", thread);
      return out;
    }
  snprintf(out, 64, "a bulk copy");
  return out;
}

void Order::join(const Order& other) {
  int n = agents();
  for (int i = 0; i < n; i++) seen[i] = std::max(seen[i], other.seen[i]);
  for (int i = 0; i < n; i++) fenced[i] = std::max(fenced[i], other.fenced[i]);
  met.join(other.met);
}
void Met::join(const Met& other) {
  for (int warp = 0; warp < MAX_WARPS; warp++) of[warp] = std::max(of[warp], other.of[warp]);
}

Clock now() {
  return self().order.seen[current];
}
Met& met() {
  return warps[current / LANES];
}
void come_along() {
  met().of[current / LANES]++;
}
void release(Order& into) {
  into.join(self().order);
  into.met.join(met());
  self().order.seen[current]++;
  come_along();
}
void acquire(int thread, const Order& from) {
  threads[thread].order.join(from);
  warps[thread / LANES].join(from.met);
}
void proxy_fence() {
  Order& order = self().order;
  std::copy(order.seen.begin(), order.seen.begin() + agents(), order.fenced.begin());
  order.seen[current]++;
}

void reset_shadow() {
  memset(reinterpret_cast<char*>(cells), 0, sizeof(Cell) * used);
  used = 0;
  lists.clear();
  bulk_count = mbarriers_in_use = 0;
  std::fill(bulk_of, bulk_of + MAX_THREADS, -1);
  std::fill(mbarrier_agents, mbarrier_agents + MAX_MBARRIERS, -1);
  next_agent = count + MAX_THREADS / WARPGROUP;
  for (int warp = 0; warp < MAX_WARPS; warp++) warps[warp] = {}, warps[warp].of[warp] = 1;
}

void check_shared_range(uint64_t address, int size, int align, Site site) {
  if (address < SHARED_BASE || address + size > SHARED_BASE + shared_bytes) {
    fail("out of bounds", site, "%d bytes at offset %lld of shared memory, of which the block has %llu", size,
         (long long)(address - SHARED_BASE), (unsigned long long)shared_bytes);
  }
  if (address % align)
    fail("misaligned", site, "an access of %d bytes at offset %llu of shared memory must be aligned to %d", size,
         (unsigned long long)(address - SHARED_BASE), align);
}

void touch_shared(uint64_t address, int size, Access access, Agent agent, Clock clock, const Order& order, Site site) {
  size_t first = address - WINDOW;
  for (; used < first + size; used++) cells[used].more = -1;
  bool reads = access == Access::READ || access == Access::ASYNC_READ;
  bool async = access == Access::ASYNC_READ || access == Access::ASYNC_WRITE;
  Event event{clock, agent, site};
  for (size_t at = first; at < first + size; at++) {
    Cell& cell = cells[at];
    uint64_t where = at + WINDOW;
    if (cell.written) {
      if (cell.in_flight)
        fail_two("race", site, cell.write.site, "%s touches byte %llu of shared memory while a copy to it is in flight",
                 agent_name(agent), (unsigned long long)(where - SHARED_BASE));
      bool both_atomic = access == Access::ATOMIC && cell.atomic;
      if (!both_atomic && !known(cell.write, order.seen)) race(cell, cell.write, true, access, where, site, agent);
      if (access == Access::ASYNC_READ && !cell.async && order.fenced[cell.write.agent] < cell.write.clock)
        fail_two("proxy fence", site, cell.write.site,
                 "%s reads byte %llu of shared memory through the asynchronous proxy; %s wrote it, and no fence.proxy.async "
                 "stands between",
                 agent_name(agent), (unsigned long long)(where - SHARED_BASE), agent_name(cell.write.agent));
    } else if (reads) {
      fail("unwritten", site, "%s reads byte %llu of shared memory, which nothing wrote", agent_name(agent),
           (unsigned long long)(where - SHARED_BASE));
    }
    if (reads) {
      add_read(cell, event, order);
      continue;
    }
    if (cell.read.clock && !known(cell.read, order.seen)) race(cell, cell.read, false, access, where, site, agent);
    if (cell.more >= 0)
      for (const Event& other : lists[cell.more])
        if (!known(other, order.seen)) race(cell, other, false, access, where, site, agent);
    cell.read = {};
    if (cell.more >= 0) lists[cell.more].clear();
    cell.write = event;
    cell.written = true;
    cell.atomic = access == Access::ATOMIC;
    cell.in_flight = access == Access::ASYNC_WRITE;
    cell.async = async;
  }
}

void landed(uint64_t address, int size, Agent agent, Clock clock) {
  for (size_t at = address - WINDOW; at < address - WINDOW + size; at++) {
    cells[at].write.agent = agent, cells[at].write.clock = clock;
    cells[at].in_flight = false;
    cells[at].async = agent >= count;  // cp.async writes through the generic proxy
  }
}

// ---- global memory ----

namespace {

struct Region {
  uint64_t start, bytes;
  const char* name;
  const uint8_t* inside;  // which bytes belong to the tensor; null: all
  bool own;               // no tensor: memory of the kernel's module
};
std::vector<Region> regions;

struct GlobalByte {
  uint32_t block;  // that wrote it last, counted from 1
  Event write;
  bool atomic;
};
std::unordered_map<uint64_t, std::vector<GlobalByte>> pages;
uint32_t block_number;
bool met_others;  // the block has made an atomic access to a tensor, by which it may have waited for others
constexpr uint64_t PAGE = 4096;
constexpr uint64_t FAR = 1ull << 35;  // tensors lie 2^36 bytes apart

// Blocks run one after the other: what a thread finds again and again, no other block will change.
void check_spin(uint64_t address, int size, const Region& region, Site site) {
  uint64_t found = 0;
  memcpy(&found, reinterpret_cast<void*>(address), std::min<size_t>(size, sizeof found));
  Spin& spin = self().spin;
  if (spin.site != site || spin.address != address || spin.found != found) spin = {site, address, found, 0};
  if (++spin.count > 30'000)
    fail("endless", site,
         "the thread finds the same value at byte %llu of %s again and again; programs run one after the other",
         (unsigned long long)(address - region.start), region.name);
}

// The bytes of a write, ordered after those of an earlier block?
void check_blocks(const GlobalByte& byte, Access access, const Region& region, uint64_t at, Site site) {
  if (!byte.block || byte.block == block_number || met_others || (access == Access::ATOMIC && byte.atomic)) return;
  uint32_t other = byte.block - 1;
  fail_two("race", site, byte.write.site,
           "this block writes byte %llu of %s, which block (%u, %u, %u) wrote; blocks run in any order",
           (unsigned long long)(at - region.start), region.name, other % grid[0], other / grid[0] % grid[1],
           other / grid[0] / grid[1]);
}

}  // namespace

extern "C" void simt_regions_clear() {
  regions.clear(), pages.clear();
  block_number = 0;
}
extern "C" void simt_region(uint64_t start, uint64_t bytes, const char* name, const uint8_t* inside, int own) {
  regions.push_back({start, bytes, name, inside, own != 0});
}
extern "C" uint64_t simt_map(uint64_t address, uint64_t bytes) {
  void* got = mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  return got == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(got);
}
extern "C" void simt_unmap(uint64_t address, uint64_t bytes) {
  munmap(reinterpret_cast<void*>(address), bytes);
}
extern "C" void simt_new_block() {
  block_number++;
  met_others = false;
}

bool kernels_own(uint64_t address) {
  return std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
    return region.own && address >= region.start && address < region.start + region.bytes;
  });
}

void check_global(uint64_t address, int size, int align, Access access, Site site) {
  if (++self().spins > 200'000'000) fail("endless", site, "the thread goes on and on without a barrier");
  const Region* found = nullptr;
  const Region* nearest = nullptr;
  uint64_t distance = ~0ull;
  for (const Region& region : regions) {
    if (address >= region.start && address + size <= region.start + region.bytes) found = &region;
    uint64_t away = address < region.start ? region.start - address : address - region.start;
    if (away < distance) distance = away, nearest = &region;
  }
  if (!found) {
    if (!nearest || distance > FAR)
      fail("out of bounds", site, "%d bytes at address %#llx, where no tensor of the launch lies", size,
           (unsigned long long)address);
    fail("out of bounds", site, "%d bytes at byte %lld of %s, which has %llu", size, (long long)(address - nearest->start),
         nearest->name, (unsigned long long)nearest->bytes);
  }
  if (address % align)
    fail("misaligned", site, "an access of %d bytes at byte %llu of %s must be aligned to %d", size,
         (unsigned long long)(address - found->start), found->name, align);
  if (found->inside)
    for (int i = 0; i < size; i++)
      if (!found->inside[address - found->start + i])
        fail("out of bounds", site, "byte %llu of %s lies between the tensor's elements",
             (unsigned long long)(address - found->start + i), found->name);
  // Two writes must be ordered: those of two blocks by atomic accesses. Reads are not compared: threads that hold copies of a
  // tile load what its owner may overwrite, and drop it. Asynchronous copies complete at times of their own.
  if (access != Access::WRITE && access != Access::ATOMIC) return;
  if (access == Access::ATOMIC) check_spin(address, size, *found, site);
  const Order& order = self().order;
  std::vector<GlobalByte>* page = nullptr;
  uint64_t page_number = ~0ull;
  static thread_local uint64_t last_number = ~0ull;
  static thread_local std::vector<GlobalByte>* last_page;
  if (pages.empty()) last_number = ~0ull;
  for (int i = 0; i < size; i++) {
    uint64_t at = address + i;
    if (at / PAGE != page_number) {
      page_number = at / PAGE;
      if (page_number != last_number) {
        page = &pages[page_number];
        if (page->empty()) page->resize(PAGE);
        last_number = page_number, last_page = page;
      }
      page = last_page;
    }
    GlobalByte& byte = (*page)[at % PAGE];
    check_blocks(byte, access, *found, at, site);
    if (byte.block != block_number) byte = {block_number, {}, false};
    bool both_atomic = access == Access::ATOMIC && byte.atomic;
    if (byte.write.clock && !both_atomic && !known(byte.write, order.seen))
      fail_two("race", site, byte.write.site,
               "thread %d writes byte %llu of %s, which thread %d of its block wrote; nothing orders the two", current,
               (unsigned long long)(at - found->start), found->name, byte.write.agent);
    byte.write = {now(), (Agent)current, site}, byte.atomic = access == Access::ATOMIC;
  }
  met_others |= access == Access::ATOMIC && !found->own;
}

}  // namespace simt
