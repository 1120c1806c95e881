// Launches kernels from plain C, with its own memory, threads and stream: no torch, no Python, no headers of CUDA.
//
//   kernelpack build saxpy.py --namespace demo --target cpu:x86-64-v3,cuda:sm_80,cuda:sm_90a
//   gcc -std=c11 -O2 -fopenmp main.c -Idemo/cpp demo/libdemo_ops.so -Wl,-rpath,$PWD/demo -ldl -o main
//   ./main cpu && ./main cuda
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo_kernels.h"

enum { kCount = 1000000 };
static const float kFactor = 2.5f;

static void fail(const char* text) {
  fprintf(stderr, "%s\n", text);
  exit(1);
}

// -- On the CPU: OpenMP's threads share the programs. Without threads, a null pointer runs them all on this one.

static int num_threads(void* context) {
  (void)context;
  return omp_get_max_threads();
}

static void run(void* context, int64_t count, void (*body)(int64_t, int64_t, void*), void* argument) {
  (void)context;
#pragma omp parallel for schedule(static, 1)
  for (int64_t i = 0; i < count; ++i) body(i, i + 1, argument);
}

static void saxpy_on_cpu(float* x, float* y) {
  struct demo_parallel_for threads = {num_threads, run, NULL};
  const int64_t block = demo_saxpy_kernel_any_cpu_x86_64_v3_BLOCK;
  const int64_t programs = (kCount + block - 1) / block;
  if (demo_launch_saxpy_kernel_any_cpu_x86_64_v3(0, &threads, programs, 1, 1, x, y, kFactor, kCount)) {
    fail(demo_kernels_error());
  }
}

// -- On a GPU: this program's stream and memory, of the driver's API

static void* driver;

#define CUDA(function, ...)                                                      \
  do {                                                                           \
    int (*const call)() = (int (*)())dlsym(driver, #function);                   \
    const int result = call == NULL ? -1 : call(__VA_ARGS__);                    \
    if (result) fprintf(stderr, "%s returned %d\n", #function, result), exit(1); \
  } while (0)

static void saxpy_on_gpu(float* x, float* y) {
  const char* library = getenv("KERNELPACK_LIBCUDA");
  driver = dlopen(library != NULL ? library : "libcuda.so.1", RTLD_NOW);
  if (driver == NULL) fail(dlerror());
  int device = 0;
  void *context = NULL, *stream = NULL;
  uint64_t x_there = 0, y_there = 0;
  const size_t bytes = kCount * sizeof(float);
  CUDA(cuInit, 0);
  CUDA(cuDeviceGet, &device, 0);
  CUDA(cuDevicePrimaryCtxRetain, &context, device);
  CUDA(cuCtxSetCurrent, context);
  CUDA(cuStreamCreate, &stream, 0);
  CUDA(cuMemAlloc_v2, &x_there, bytes);
  CUDA(cuMemAlloc_v2, &y_there, bytes);
  CUDA(cuMemcpyHtoDAsync_v2, x_there, (void*)x, bytes, stream);
  CUDA(cuMemcpyHtoDAsync_v2, y_there, (void*)y, bytes, stream);

  // The code that this GPU runs best. All of kCount is divisible by 16, and so is what cuMemAlloc returns: the aligned one.
  const char* target = demo_target("cuda", 0);
  if (target == NULL) fail(demo_kernels_error());
  const int is_hopper = strcmp(target, "cuda:sm_90a") == 0;
  int (*const saxpy)(int, void*, int64_t, int64_t, int64_t, void*, void*, float, int32_t) =
      is_hopper ? demo_launch_saxpy_kernel_aligned_cuda_sm_90a : demo_launch_saxpy_kernel_aligned_cuda_sm_80;
  const int64_t block = is_hopper ? demo_saxpy_kernel_aligned_cuda_sm_90a_BLOCK : demo_saxpy_kernel_aligned_cuda_sm_80_BLOCK;
  if (saxpy(0, stream, (kCount + block - 1) / block, 1, 1, (void*)x_there, (void*)y_there, kFactor, kCount)) {
    fail(demo_kernels_error());
  }

  CUDA(cuMemcpyDtoHAsync_v2, (void*)y, y_there, bytes, stream);
  CUDA(cuStreamSynchronize, stream);
}

int main(int argc, char** argv) {
  const char* where = argc > 1 ? argv[1] : "cpu";
  float* x = malloc(kCount * sizeof(float));
  float* y = malloc(kCount * sizeof(float));
  for (int i = 0; i < kCount; ++i) x[i] = (float)i, y[i] = 1;
  strcmp(where, "cuda") == 0 ? saxpy_on_gpu(x, y) : saxpy_on_cpu(x, y);
  for (int i = 0; i < kCount; ++i) {
    if (y[i] != kFactor * (float)i + 1) return fprintf(stderr, "y[%d] is %g\n", i, y[i]), 1;
  }
  printf("y = %g x + y of %d elements is right (%s)\n", kFactor, kCount, where);
  return 0;
}
