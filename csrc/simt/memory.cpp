// Loads and stores as the kernel makes them, cp.async, and operations that complete later than they are issued.
#include <algorithm>
#include <cstring>
#include <deque>

#include "simt.h"

namespace simt {

namespace {

struct Postponed {
  Site site;
  std::function<void()> operation;
  int thread;
};
std::deque<Postponed> pending;

void perform(const Copy& copy) {
  memset(reinterpret_cast<void*>(copy.to), 0, copy.size);
  memcpy(reinterpret_cast<void*>(copy.to), reinterpret_cast<void*>(copy.from), copy.used);
}

// Completes the copies of a thread that `chosen` names; their bytes then are as if the thread had written them at `clock`.
template <typename Chosen>
void complete_copies(int thread, Clock clock, Chosen chosen) {
  auto& copies = threads[thread].copies;
  for (const Copy& copy : copies) {
    if (!chosen(copy)) continue;
    if (!eager) perform(copy);
    landed(copy.to, copy.size, (Agent)thread, clock);
  }
  copies.erase(std::remove_if(copies.begin(), copies.end(), chosen), copies.end());
}

}  // namespace

void postpone(Site site, std::function<void()> operation) {
  if (eager)
    operation();
  else
    pending.push_back({site, std::move(operation), current});
}

bool complete_one() {
  if (pending.empty()) return false;
  Postponed first = std::move(pending.front());
  pending.pop_front();
  current = first.thread;
  first.operation();
  return true;
}

bool anything_pending(Site* site) {
  if (!pending.empty()) *site = pending.front().site;
  return !pending.empty();
}

void reset_pending() {
  pending.clear();
}

void check_exit() {
  if (!self().copies.empty())
    fail("exit", self().copies.front().site, "thread %d returns while this copy to shared memory is in flight", current);
  check_exit_bulk();
}

extern "C" {

enum Space { GENERIC = 0, GLOBAL = 1, SHARED = 3 };

// Every load (kind 0), store (1) and atomic (2) of the kernel calls this first.
void simt_access(Slot address, uint32_t size, uint32_t align, uint32_t kind, uint32_t space, Site site) {
  auto access = (Access)kind;
  bool in_window = address >= WINDOW && address < WINDOW + WINDOW_BYTES;
  if (space == SHARED || (space == GENERIC && in_window)) {
    check_shared_range(address, (int)size, (int)align, site);
    touch_shared(address, (int)size, access, (Agent)current, now(), self().order, site);
  } else if (space == GLOBAL || address >= GLOBAL_WINDOW) {
    check_global(address, (int)size, (int)align, access, site);
  }  // else on the thread's own stack
}

// in: target, source, bytes that are read (the rest is zero), bytes that are written
void simt_cp_async(Site site, const Slot* in, Slot*) {
  Thread& thread = self();
  int size = (int)in[3], bytes = off(site) ? size : (int)(uint32_t)in[2];
  if (bytes > size) fail("copy", site, "cp.async of %d bytes out of %d", bytes, size);
  check_shared_range(in[0], size, size, site);
  if (bytes) check_global(in[1], bytes, size, Access::READ, site);
  touch_shared(in[0], size, Access::ASYNC_WRITE, (Agent)current, now(), thread.order, site);
  thread.copies.push_back({in[0], in[1], size, bytes, thread.copy_group, ++thread.copy_id, site});
  if (eager) perform(thread.copies.back());
}
void simt_cp_commit(Site, const Slot*, Slot*) {
  self().copy_group++;
}
void simt_cp_wait(Site site, const Slot* in, Slot*) {
  if (off(site)) return;
  int64_t done = (int64_t)self().copy_group - (int64_t)in[0];
  complete_copies(current, now(), [&](const Copy& copy) { return (int64_t)copy.group < done; });
}

}  // extern "C"
}  // namespace simt
