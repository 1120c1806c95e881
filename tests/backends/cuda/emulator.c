/* Runs the threads of a CUDA block as coroutines of one host thread, so that kernels can be tested without a GPU.

   A thread runs until it meets an instruction that needs others (a barrier, a shuffle, a matrix instruction). The order in which
   threads are picked is a parameter: a missing barrier shows as results that depend on it. Semantics follow the PTX ISA. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { LANES = 32, MAX_THREADS = 1024, STACK = 512 * 1024, SLOTS = 16, SHARED = 256 * 1024, MAX_COPIES = 4096 };

typedef struct { void *to; const void *from; int size, used, group; } Copy;

typedef struct {
    ucontext_t context;
    void *stack;
    int done;
    uint64_t waits_for; /* the round of its warp or block that must complete first */
    int kind;           /* 0 running, 1 waits for its warp, 2 for the block */
    Copy *copies;
    int n_copies, group, first_copy;
} Thread;

typedef struct { uint64_t in[LANES][SLOTS], out[LANES][SLOTS]; const char *name; int arrived; uint64_t round; } Warp;

char shared_memory[SHARED] __attribute__((aligned(1024)));
static Thread threads[MAX_THREADS];
static Warp warps[MAX_THREADS / LANES];
static ucontext_t scheduler;
static int count, current, block[3], grid[3], at_barrier, eager_copies;
static uint64_t barrier_round;
static char failure[512];

static void fail(const char *message, const char *detail) {
    if (!failure[0]) snprintf(failure, sizeof failure, "%s %s (thread %d of block %d)", message, detail, current, block[0]);
}
const char *emulator_failure(void) { return failure; }

static void yield_(void) { swapcontext(&threads[current].context, &scheduler); }

/* ---- collective operations of a warp ---- */

typedef void (*Collective)(Warp *);

static void collective(const char *name, Collective run, const uint64_t *in, int n_in, uint64_t *out, int n_out) {
    Warp *warp = &warps[current / LANES];
    int lane = current % LANES;
    if (warp->arrived && strcmp(warp->name, name)) fail("lanes of a warp diverge at", name);
    warp->name = name;
    memcpy(warp->in[lane], in, sizeof(uint64_t) * n_in);
    if (++warp->arrived == LANES) {
        run(warp);
        warp->arrived = 0;
        warp->round++;
    } else {
        threads[current].kind = 1;
        threads[current].waits_for = warp->round + 1;
        yield_();
    }
    memcpy(out, warp->out[lane], sizeof(uint64_t) * n_out);
}

static void shuffle(Warp *w, int mode) {
    for (int lane = 0; lane < LANES; lane++) {
        int by = (int)w->in[lane][2], from = lane;
        if (mode == 0) from = lane ^ by;
        if (mode == 1 && lane >= by) from = lane - by;
        if (mode == 2 && lane + by < LANES) from = lane + by;
        if (mode == 3) from = by & 31;
        w->out[lane][0] = w->in[from][1];
    }
}
static void bfly(Warp *w) { shuffle(w, 0); }
static void up(Warp *w) { shuffle(w, 1); }
static void down(Warp *w) { shuffle(w, 2); }
static void idx(Warp *w) { shuffle(w, 3); }
void emulate_shfl_sync_bfly_i32(uint64_t *in, uint64_t *out) { collective("shfl.bfly", bfly, in, 4, out, 1); }
void emulate_shfl_sync_up_i32(uint64_t *in, uint64_t *out) { collective("shfl.up", up, in, 4, out, 1); }
void emulate_shfl_sync_down_i32(uint64_t *in, uint64_t *out) { collective("shfl.down", down, in, 4, out, 1); }
void emulate_shfl_sync_idx_i32(uint64_t *in, uint64_t *out) { collective("shfl.idx", idx, in, 4, out, 1); }

static void nothing(Warp *w) { (void)w; }
void emulate_bar_warp_sync(uint64_t *in, uint64_t *out) { collective("bar.warp", nothing, in, 1, out, 0); }

/* ldmatrix: lane 8 j + i gives the address of row i of matrix j; lane l receives elements 2 (l % 4), + 1 of row l / 4,
   with .trans of column l / 4 */
static void ldmatrix(Warp *w, int n, int transposed) {
    uint16_t matrix[8][8];
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < 8; i++) {
            uint64_t address = w->in[8 * j + i][0];
            if (address % 16) fail("ldmatrix: address not aligned", "");
            memcpy(matrix[i], (void *)address, 16);
        }
        for (int lane = 0; lane < LANES; lane++) {
            int row = lane / 4, column = 2 * (lane % 4);
            uint32_t low = transposed ? matrix[column][row] : matrix[row][column];
            uint32_t high = transposed ? matrix[column + 1][row] : matrix[row][column + 1];
            w->out[lane][j] = low | high << 16;
        }
    }
}
#define LDMATRIX(N, SUFFIX, T)                                                          \
    static void ld##N##SUFFIX(Warp *w) { ldmatrix(w, N, T); }                           \
    void emulate_ldmatrix_sync_aligned_m8n8_x##N##SUFFIX##_b16_p3(uint64_t *in, uint64_t *out) { \
        collective("ldmatrix." #N #SUFFIX, ld##N##SUFFIX, in, 1, out, N);               \
    }
LDMATRIX(1, , 0) LDMATRIX(2, , 0) LDMATRIX(4, , 0) LDMATRIX(1, _trans, 1) LDMATRIX(2, _trans, 1) LDMATRIX(4, _trans, 1)

/* ---- numbers ---- */

static float from_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static uint32_t to_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }
static float bfloat_(uint32_t bits) { return from_bits(bits << 16); }
static float half_(uint32_t bits) {
    uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return from_bits(sign | 0x7F800000 | fraction << 13);
    float magnitude = exponent ? ldexpf(1024 + fraction, (int)exponent - 25) : ldexpf(fraction, -24);
    return sign ? -magnitude : magnitude;
}
/* what the host compiler calls to round to bfloat16: the 16 bits come back in a floating-point register */
float __truncsfbf2(float x) {
    uint32_t bits = to_bits(x);
    return from_bits(x != x ? bits >> 16 | 64 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* ---- mma.sync.m16n8k*: fragments as in the figures of PTX ISA 9.7.15.5 ---- */

typedef float (*Decode)(uint32_t);
static float tensor_float(uint32_t bits) { return from_bits(bits & 0xFFFFE000u); }
static float byte_(uint32_t bits) { return (int8_t)bits; }

static void mma(Warp *w, int k, int bits, Decode decode, int integer) {
    static double a[16][32], b[32][8];
    int per = 32 / bits;
    uint32_t mask = bits == 32 ? 0xFFFFFFFFu : (1u << bits) - 1;
    int words_a = 4, words_b = 2;
    for (int lane = 0; lane < LANES; lane++) {
        int group = lane / 4, quad = lane % 4;
        for (int r = 0; r < words_a; r++)
            for (int e = 0; e < per; e++)
                a[group + 8 * (r % 2)][quad * per + e + (r / 2) * (k / 2)] = decode((uint32_t)w->in[lane][r] >> (bits * e % 32) & mask);
        for (int r = 0; r < words_b; r++)
            for (int e = 0; e < per; e++)
                b[quad * per + e + r * (k / 2)][group] = decode((uint32_t)w->in[lane][words_a + r] >> (bits * e % 32) & mask);
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int r = 0; r < 4; r++) {
            int row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
            double sum = 0;
            for (int i = 0; i < k; i++) sum += a[row][i] * b[i][column];
            uint32_t c = (uint32_t)w->in[lane][6 + r];
            w->out[lane][r] = integer ? (uint32_t)((int32_t)c + (int32_t)sum) : to_bits((float)((double)from_bits(c) + sum));
        }
}
static void mma_bf16(Warp *w) { mma(w, 16, 16, bfloat_, 0); }
static void mma_f16(Warp *w) { mma(w, 16, 16, half_, 0); }
static void mma_tf32(Warp *w) { mma(w, 8, 32, tensor_float, 0); }
static void mma_s8(Warp *w) { mma(w, 32, 8, byte_, 1); }
void emulate_mma_m16n8k16_row_col_bf16(uint64_t *in, uint64_t *out) { collective("mma.bf16", mma_bf16, in, 10, out, 4); }
void emulate_mma_m16n8k16_row_col_f32_f32(uint64_t *in, uint64_t *out) { collective("mma.f16", mma_f16, in, 10, out, 4); }
void emulate_mma_m16n8k8_row_col_tf32(uint64_t *in, uint64_t *out) { collective("mma.tf32", mma_tf32, in, 10, out, 4); }
void emulate_mma_m16n8k32_row_col_s8(uint64_t *in, uint64_t *out) { collective("mma.s8", mma_s8, in, 10, out, 4); }

/* ---- the block ---- */

void emulate_barrier_cta_sync_aligned_all(uint64_t *in, uint64_t *out) {
    (void)in, (void)out;
    if (++at_barrier == count) {
        at_barrier = 0;
        barrier_round++;
    } else {
        threads[current].kind = 2;
        threads[current].waits_for = barrier_round + 1;
        yield_();
    }
}
void emulate_read_ptx_sreg_tid_x(uint64_t *in, uint64_t *out) { (void)in; out[0] = current; }
#define AXIS(NAME, INDEX)                                                                             \
    void emulate_read_ptx_sreg_ctaid_##NAME(uint64_t *in, uint64_t *out) { (void)in; out[0] = block[INDEX]; } \
    void emulate_read_ptx_sreg_nctaid_##NAME(uint64_t *in, uint64_t *out) { (void)in; out[0] = grid[INDEX]; }
AXIS(x, 0) AXIS(y, 1) AXIS(z, 2)

/* ---- cp.async: done at once, or as late as the waits allow; both must give the same ---- */

static void perform(Copy *copy) {
    memset(copy->to, 0, copy->size);
    memcpy(copy->to, copy->from, copy->used);
}
static void cp_async(uint64_t *in, int size, int used) {
    Thread *t = &threads[current];
    if (in[0] % size || (used && in[1] % size)) fail("cp.async: address not aligned", "");
    Copy copy = {(void *)in[0], (const void *)in[1], size, used, t->group};
    if (eager_copies) { perform(&copy); return; }
    if (t->n_copies == MAX_COPIES) { fail("too many asynchronous copies", ""); return; }
    t->copies[t->n_copies++] = copy;
}
#define CP(CACHE, SIZE)                                                                                                     \
    void emulate_cp_async_##CACHE##_shared_global_##SIZE(uint64_t *in, uint64_t *out) { (void)out; cp_async(in, SIZE, SIZE); } \
    void emulate_cp_async_##CACHE##_shared_global_##SIZE##_s(uint64_t *in, uint64_t *out) { (void)out; cp_async(in, SIZE, (int)in[2]); }
CP(ca, 4) CP(ca, 8) CP(cg, 16)
void emulate_cp_async_commit_group(uint64_t *in, uint64_t *out) { (void)in, (void)out; threads[current].group++; }
void emulate_cp_async_wait_group(uint64_t *in, uint64_t *out) {
    (void)out;
    Thread *t = &threads[current];
    while (t->first_copy < t->n_copies && t->copies[t->first_copy].group < t->group - (int)in[0]) perform(&t->copies[t->first_copy++]);
    if (t->first_copy == t->n_copies) t->first_copy = t->n_copies = 0;
}

/* ---- arithmetic ---- */

void emulate_ex2_approx_ftz_f(uint64_t *in, uint64_t *out) {
    float y = exp2f(from_bits((uint32_t)in[0]));
    out[0] = to_bits(fabsf(y) < 0x1p-126f ? 0 : y);
}
void emulate_rsqrt_approx_f(uint64_t *in, uint64_t *out) { out[0] = to_bits((float)(1.0 / sqrt(from_bits((uint32_t)in[0])))); }
void emulate_div_full(uint64_t *in, uint64_t *out) { out[0] = to_bits(from_bits((uint32_t)in[0]) / from_bits((uint32_t)in[1])); }
void emulate_f2bf16_rz(uint64_t *in, uint64_t *out) { out[0] = (uint32_t)in[0] >> 16; }
void emulate_d2f_rz(uint64_t *in, uint64_t *out) {
    double x; memcpy(&x, in, 8);
    float y = (float)x;
    if (fabs(y) > fabs(x)) y = nextafterf(y, 0);
    out[0] = to_bits(y);
}
void emulate_asm_cvt_rna_tf32_f32(uint64_t *in, uint64_t *out) {
    uint32_t bits = (uint32_t)in[0];
    if ((bits & 0x7F800000) != 0x7F800000) bits += 0x1000;
    out[0] = bits & 0xFFFFE000u;
}
void emulate_asm_cvt_rz_f16_f32(uint64_t *in, uint64_t *out) {
    float x = from_bits((uint32_t)in[0]);
    uint32_t best = 0; /* the largest half not above |x|: halves are ordered like their bits */
    for (uint32_t step = 1 << 14; step; step >>= 1)
        if ((best | step) <= 0x7BFF && half_(best | step) <= fabsf(x)) best |= step;
    if (x != x) best = 0x7FFF; else if (isinf(x)) best = 0x7C00;
    out[0] = best | (signbit(x) ? 0x8000 : 0);
}

/* ---- libdevice ---- */

#define LIBDEVICE(NAME) double __nv_##NAME(double x) { return NAME(x); } float __nv_##NAME##f(float x) { return (float)NAME((double)x); }
LIBDEVICE(exp) LIBDEVICE(exp2) LIBDEVICE(log) LIBDEVICE(log2) LIBDEVICE(log1p) LIBDEVICE(sin) LIBDEVICE(cos) LIBDEVICE(tanh) LIBDEVICE(erf)
double __nv_rsqrt(double x) { return 1 / sqrt(x); }
double __nv_fmod(double x, double y) { return fmod(x, y); }
float __nv_fmodf(float x, float y) { return fmodf(x, y); }

/* ---- running a grid ---- */

static void (*entry)(void);
static void start(void) {
    entry();
    threads[current].done = 1;
    while (1) yield_();
}

static int runnable(int t) {
    Thread *thread = &threads[t];
    if (thread->done) return 0;
    if (thread->kind == 1) return warps[t / LANES].round >= thread->waits_for;
    if (thread->kind == 2) return barrier_round >= thread->waits_for;
    return 1;
}

static void run_block(unsigned order) {
    memset(shared_memory, 0xFF, SHARED); /* NaN in every format */
    at_barrier = 0, barrier_round = 0;
    memset(warps, 0, sizeof warps);
    for (int t = 0; t < count; t++) {
        Thread *thread = &threads[t];
        if (!thread->stack) thread->stack = malloc(STACK), thread->copies = malloc(sizeof(Copy) * MAX_COPIES);
        thread->done = thread->kind = thread->n_copies = thread->group = thread->first_copy = 0;
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack;
        thread->context.uc_stack.ss_size = STACK;
        thread->context.uc_link = 0;
        makecontext(&thread->context, start, 0);
    }
    int left = count;
    while (left && !failure[0]) {
        int ran = 0;
        for (int w = 0; w < count / LANES; w++) {
            int warp = order == 1 ? count / LANES - 1 - w : order > 1 ? (int)((w * 5u + order) % (count / LANES)) : w;
            for (int again = 1; again && !failure[0];) { /* a warp goes on as long as it can */
                again = 0;
                for (int l = 0; l < LANES; l++) {
                    int t = warp * LANES + (order == 1 ? LANES - 1 - l : l);
                    if (!runnable(t)) continue;
                    threads[t].kind = 0;
                    current = t;
                    swapcontext(&scheduler, &threads[t].context);
                    if (threads[t].done) left--;
                    ran = again = 1;
                }
            }
        }
        if (!ran) { current = 0; fail("deadlock: threads wait for others that never come", ""); }
    }
}

void emulator_run(void (*kernel)(void), int n_threads, const int *size, unsigned order, int eager) {
    entry = kernel, count = n_threads, eager_copies = eager;
    failure[0] = 0;
    memcpy(grid, size, sizeof grid);
    for (block[2] = 0; block[2] < grid[2]; block[2]++)
        for (block[1] = 0; block[1] < grid[1]; block[1]++)
            for (block[0] = 0; block[0] < grid[0]; block[0]++) {
                run_block(order);
                if (failure[0]) return;
            }
}
