// Runs the threads of each block of a grid as fibers of one host thread, and says where they wait when none can go on.
//
// A thread runs until it meets an instruction that needs others. The order in which threads are picked is a parameter.
#include <setjmp.h>
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "simt.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

Thread threads[MAX_THREADS];
int count, current, block[3], grid[3];
uint64_t shared_bytes;
bool eager;
Slot* arguments;
extern "C" {
uint8_t simt_off[MAX_SITES];
}

namespace {

constexpr size_t STACK = 1 << 20;  // reserved, not used: pages appear when they are touched
void (*entry)(Slot*);
int left;

// ---- switching between stacks ----

#if defined(__x86_64__)
extern "C" void simt_switch(void** from, void* to);
asm(R"(
.text
.globl simt_switch
.type simt_switch, @function
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
void* scheduler;

void switch_to_thread(Thread& thread) {
  simt_switch(&scheduler, thread.context);
}
void switch_to_scheduler(Thread& thread) {
  simt_switch(&thread.context, scheduler);
}
void prepare(Thread& thread, void (*start)()) {
  void** top = reinterpret_cast<void**>(static_cast<char*>(thread.stack) + STACK);
  *--top = nullptr;  // keeps the stack aligned as a call leaves it
  *--top = reinterpret_cast<void*>(start);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  thread.context = top;
}
#else
ucontext_t scheduler;
void switch_to_thread(Thread& thread) {
  swapcontext(&scheduler, static_cast<ucontext_t*>(thread.context));
}
void switch_to_scheduler(Thread& thread) {
  swapcontext(static_cast<ucontext_t*>(thread.context), &scheduler);
}
void prepare(Thread& thread, void (*start)()) {
  if (!thread.context) thread.context = new ucontext_t;
  auto* context = static_cast<ucontext_t*>(thread.context);
  getcontext(context);
  context->uc_stack.ss_sp = thread.stack;
  context->uc_stack.ss_size = STACK;
  context->uc_link = nullptr;
  makecontext(context, start, 0);
}
#endif

struct Finding {
  int set, thread, block[3];
  Site site, other;
  char kind[32];
  char text[4096];
} finding;
bool in_scheduler;
jmp_buf stop;

void stop_run() {
  if (in_scheduler) longjmp(stop, 1);
  switch_to_scheduler(self());
  __builtin_unreachable();
}

void report(const char* kind, Site site, Site other, const char* format, va_list values) {
  finding.set = 1, finding.thread = current, finding.site = site, finding.other = other;
  memcpy(finding.block, block, sizeof block);
  snprintf(finding.kind, sizeof finding.kind, "%s", kind);
  vsnprintf(finding.text, sizeof finding.text, format, values);
}

void start() {
  entry(arguments);
  check_exit();
  self().wait = Wait::DONE;
  left--;
  for (;;) switch_to_scheduler(self());
}

std::string ranges(const std::vector<int>& members) {
  std::string text;
  for (size_t i = 0; i < members.size();) {
    size_t j = i;
    while (j + 1 < members.size() && members[j + 1] == members[j] + 1) j++;
    text += (text.empty() ? "" : ", ") + std::to_string(members[i]) + (j > i ? "-" + std::to_string(members[j]) : "");
    i = j + 1;
  }
  return text;
}

// Lists where each group of threads waits; Python replaces {site N} by the line.
void deadlock() {
  std::map<std::tuple<int, Site, uint64_t>, std::vector<int>> groups;
  for (int t = 0; t < count; t++) groups[{(int)threads[t].wait, threads[t].site, threads[t].what}].push_back(t);
  std::string text = "no thread can go on";
  Site first = 0;
  for (const auto& [key, members] : groups) {
    auto [wait, site, what] = key;
    char where[128] = "at an instruction of the whole warp";
    if ((Wait)wait == Wait::BARRIER) describe_barrier(what, where, sizeof where);
    if ((Wait)wait == Wait::MBARRIER) describe_mbarrier(what, where, sizeof where);
    if ((Wait)wait == Wait::WGMMA) snprintf(where, sizeof where, "until their warpgroup has issued its wgmma");
    bool done = (Wait)wait == Wait::DONE;
    text += "\n    threads " + ranges(members) + (done ? " have returned" : std::string(" wait ") + where);
    if (!done) text += ": {site " + std::to_string(site) + "}", first = first ? first : site;
  }
  current = 0;
  for (int t = 0; t < count; t++)
    if (threads[t].wait != Wait::DONE) {
      current = t;
      break;
    }
  fail("deadlock", first, "%s", text.c_str());
}

void run_block(unsigned order) {
  memset(reinterpret_cast<void*>(WINDOW), 0xFF, WINDOW_BYTES);  // NaN in every format
  reset_shadow(), reset_mbarriers(), reset_barriers(), reset_warps(), reset_wgmma(), reset_pending(), reset_bulk();
  reset_tensor_maps();
  for (int t = 0; t < count; t++) {
    Thread& thread = threads[t];
    if (!thread.stack)
      thread.stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    prepare(thread, start);
    thread.wait = Wait::NONE, thread.spins = 0, thread.spin = {};
    thread.order.reset();
    thread.order.seen[t] = 1;
    thread.copies.clear();
    thread.copy_group = thread.copy_id = thread.bulk_group = thread.bulk_read = thread.bulk_open = 0;
  }
  left = count;
  int warps = (count + LANES - 1) / LANES;
  while (left) {
    bool ran = false;
    for (int w = 0; w < warps; w++) {
      int warp = order == 1 ? warps - 1 - w : order > 1 ? (int)((w * 5u + order) % (unsigned)warps) : w;
      for (bool again = true; again;) {  // a warp goes on as long as it can
        again = false;
        for (int l = 0; l < LANES; l++) {
          int t = warp * LANES + (order == 1 ? LANES - 1 - l : l);
          if (t >= count || threads[t].wait != Wait::NONE) continue;
          current = t;
          in_scheduler = false;
          switch_to_thread(threads[t]);
          in_scheduler = true;
          if (finding.set) return;
          ran = again = true;
        }
      }
    }
    if (!ran && left && !complete_one()) deadlock();
  }
  Site site;
  if (anything_pending(&site)) fail("exit", site, "the block ends while this copy to its shared memory is in flight");
  check_exit_wgmma();
}

}  // namespace

void give_way(Wait wait, Site site, uint64_t what) {
  Thread& thread = self();
  thread.wait = wait, thread.site = site, thread.what = what, thread.spins = 0;
  switch_to_scheduler(thread);
}

void wake(int thread) {
  threads[thread].wait = Wait::NONE;
}

void fail(const char* kind, Site site, const char* format, ...) {
  va_list values;
  va_start(values, format);
  report(kind, site, 0, format, values);
  va_end(values);
  stop_run();
  __builtin_unreachable();
}

void fail_two(const char* kind, Site site, Site other, const char* format, ...) {
  va_list values;
  va_start(values, format);
  report(kind, site, other, format, values);
  va_end(values);
  stop_run();
  __builtin_unreachable();
}

extern "C" {

int simt_found() {
  return finding.set;
}
const char* simt_kind() {
  return finding.kind;
}
const char* simt_text() {
  return finding.text;
}
uint32_t simt_site() {
  return finding.site;
}
uint32_t simt_other_site() {
  return finding.other;
}
int simt_thread() {
  return finding.thread;
}
int simt_block(int axis) {
  return finding.block[axis];
}

void simt_new_block();

// Runs a grid. `order` picks who runs first; what was found, if anything, is read by the functions above.
void simt_run(void (*kernel)(Slot*), Slot* values, int n_threads, uint64_t shared, const int* size, unsigned order, int early) {
  entry = kernel, arguments = values, count = n_threads, shared_bytes = shared, eager = early;
  finding.set = 0;
  in_scheduler = true;
  memcpy(grid, size, sizeof grid);
  if (setjmp(stop)) return;
  for (block[2] = 0; block[2] < grid[2]; block[2]++)
    for (block[1] = 0; block[1] < grid[1]; block[1]++)
      for (block[0] = 0; block[0] < grid[0]; block[0]++) {
        simt_new_block();
        run_block(order);
        if (finding.set) return;
      }
}

}  // extern "C"
}  // namespace simt
