// What the parts of the SIMT emulator share: threads of one block as fibers, their order in time, and its memory.
//
// Translated kernels call `simt_*` functions. Machine operations take the site (the line of LLVM IR they come from), their
// operands as 64-bit slots and a place for their results. Semantics follow the PTX ISA.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace simt {

constexpr int LANES = 32, WARPGROUP = 128, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / LANES, MAX_SITES = 1 << 20;
constexpr uint64_t WINDOW = 0x60000000, WINDOW_BYTES = 256 * 1024;  // where shared memory is: descriptors hold 18 bits of it
constexpr uint64_t SHARED_BASE = WINDOW + 1024;                     // the first KB of a block is the system's
constexpr uint64_t GLOBAL_WINDOW = 1ull << 44;                      // where tensors are, each far from the others

using Site = uint32_t;
using Slot = uint64_t;

// ---- order in time: who has seen which events of whom ----

// Agents are what acts by itself: threads, warpgroups' matrix units, barriers in shared memory (for copies that arrive at
// them), and threads' bulk copies. A clock counts an agent's events; a vector says for every agent up to where its events are
// known.
using Clock = uint32_t;
using Agent = uint16_t;
constexpr int MAX_MBARRIERS = 128, MAX_BULK = 64;
constexpr int MAX_AGENTS = MAX_THREADS + MAX_THREADS / WARPGROUP + MAX_MBARRIERS + MAX_BULK;

// How far each warp is known to have come, whatever it did to memory.
struct Met {
  Clock of[MAX_WARPS] = {};
  void join(const Met& other);
};

// Two vectors: what is known, and what of it is known to the asynchronous proxy too (PTX ISA, proxy-preserved causality order).
struct Order {
  std::vector<Clock> seen, fenced;
  Met met;
  void reset() { seen.assign(MAX_AGENTS, 0), fenced.assign(MAX_AGENTS, 0), met = {}; }
  void join(const Order& other);
};

int agents();  // how many numbers are in use
Agent warpgroup_agent(int warpgroup);
Agent mbarrier_agent(int index);
Agent bulk_agent(int thread);  // allots one when first asked

// ---- threads ----

enum class Wait : uint8_t { NONE, WARP, BARRIER, MBARRIER, WGMMA, BULK, DONE };

struct Copy {  // cp.async
  uint64_t to, from;
  int size, used;
  uint32_t group, id;
  Site site;
};

struct Spin {  // atomic accesses of a thread, one like the other
  Site site = 0;
  uint64_t address = 0, found = 0, count = 0;
};

struct Thread {
  void* stack = nullptr;
  void* context = nullptr;  // its stack pointer while it does not run
  Wait wait = Wait::NONE;
  Site site = 0;       // of the instruction it waits at
  uint64_t what = 0;   // which barrier, and which parity or count, for the report
  uint64_t spins = 0;  // checks since it last gave way
  Spin spin;
  Order order;
  std::vector<Copy> copies;
  uint32_t copy_group = 0, copy_id = 0;
  uint32_t bulk_group = 0, bulk_read = 0;  // committed, and known to be read
  uint32_t bulk_open = 0;                  // operations not yet committed
};

extern Thread threads[MAX_THREADS];
extern int count, current, block[3], grid[3];
extern uint64_t shared_bytes;
extern bool eager;  // asynchronous operations complete as early, not as late, as they may
extern Slot* arguments;

inline Thread& self() {
  return threads[current];
}
void give_way(Wait wait, Site site, uint64_t what = 0);  // returns when `wake` was called for this thread
void wake(int thread);
[[noreturn]] void fail(const char* kind, Site site, const char* format, ...);
[[noreturn]] void fail_two(const char* kind, Site site, Site other, const char* format, ...);  // two places in the source
const char* agent_name(Agent agent);

// What a removed operation does: nothing. Planted faults are sites whose entry is set.
extern "C" uint8_t simt_off[MAX_SITES];
inline bool off(Site site) {
  return simt_off[site];
}

// ---- events ----

void release(Order& into);                    // what the thread knows goes into `into`, then its next event begins
void acquire(int thread, const Order& from);  // and the other way round
Met& met();                                   // of the warp: its lanes go together
void come_along();                            // the warp's next event begins
void proxy_fence();

// ---- memory ----

enum class Access : uint8_t { READ, WRITE, ATOMIC, ASYNC_READ, ASYNC_WRITE };

void reset_shadow();
void check_shared_range(uint64_t address, int size, int align, Site site);
// An access by `agent` at `clock`, ordered after what the thread knows. ASYNC_WRITE leaves the bytes in flight until `landed`.
void touch_shared(uint64_t address, int size, Access access, Agent agent, Clock clock, const Order& order, Site site);
void landed(uint64_t address, int size, Agent agent, Clock clock);
void check_global(uint64_t address, int size, int align, Access access, Site site);
bool kernels_own(uint64_t address);  // global memory of the kernel's module, not of a tensor
Clock now();                         // the thread's own clock

// ---- tensor maps ----

// A tensor map as the emulator's launcher writes it into the 128 bytes of a kernel's parameter, or as a kernel puts it
// together.
struct TensorMap {
  uint64_t address;
  uint64_t sizes[5], strides[5];  // in elements; in bytes, that of dimension 0 is the element's size
  uint16_t box[5];
  uint8_t rank, element, swizzle;  // swizzle: bytes of the pattern, 0, 32, 64 or 128
  uint8_t nan;                     // what lies outside reads as NaN, not zero
};
static_assert(sizeof(TensorMap) <= 128, "a tensor map has 128 bytes");

// Returns the map that a copy uses, which completes when `agent` comes to `clock`.
TensorMap use_tensor_map(uint64_t address, Agent agent, Clock clock, Site site);
void reset_tensor_maps();

// ---- operations that complete later ----

void postpone(Site site, std::function<void()> operation);  // done at once if `eager`
bool complete_one();  // the scheduler asks when no thread can run; false if nothing is pending
bool anything_pending(Site* site);
void reset_pending();

void reset_mbarriers();
int find_mbarrier(uint64_t address, Site site);
void mbarrier_copied(int mbarrier, Clock clock, int64_t bytes, const Met& issued, Site site);
Clock mbarrier_phase(int mbarrier);
void reset_barriers();
void reset_warps();
void reset_wgmma();
void reset_bulk();
void check_exit();  // by a thread that returns
void check_exit_bulk();
void check_exit_wgmma();  // by a block whose threads have
void describe_barrier(uint64_t what, char* text, size_t size);
void describe_mbarrier(uint64_t what, char* text, size_t size);

// ---- collective operations of a warp ----

struct Collected {
  Slot in[LANES][20], out[LANES][20];
};
using Collective = void (*)(Collected&, const Slot* constants, Site site);
// Waits until every lane of the warp is at this site, then runs `action` once.
void collective(Site site, Collective action, const Slot* in, int inputs, Slot* out, int outputs,
                const Slot* constants = nullptr);

// ---- numbers ----

float from_bits(uint32_t bits);
uint32_t to_bits(float x);
float from_half(uint32_t bits);
float from_bfloat(uint32_t bits);
uint32_t to_bfloat(float x);
float from_e4m3(uint32_t bits);
float from_e5m2(uint32_t bits);
enum Format { BF16, F16, TF32, S8, E4M3, E5M2 };
int bits_of(Format format);
float decode(Format format, uint32_t bits);

}  // namespace simt
