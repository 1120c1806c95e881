// The library needs no libtorch: it would then not load without. Torch's headers declare functions that are defined here, each
// a jump to torch's own. What a call of an op needs goes through torch_functions, without the jump.
#include "ops/torch_symbols.h"

#include <dlfcn.h>

#include <cstdint>

#include "ops/shim.h"

#define KERNELPACK_TORCH_SYMBOLS(SYMBOL)     \
  SYMBOL(aoti_torch_abi_version)             \
  SYMBOL(aoti_torch_delete_library_object)   \
  SYMBOL(aoti_torch_delete_tensor_object)    \
  SYMBOL(aoti_torch_device_type_cpu)         \
  SYMBOL(aoti_torch_device_type_cuda)        \
  SYMBOL(aoti_torch_device_type_meta)        \
  SYMBOL(aoti_torch_device_type_mps)         \
  SYMBOL(aoti_torch_device_type_privateuse1) \
  SYMBOL(aoti_torch_device_type_xpu)         \
  SYMBOL(aoti_torch_dtype_bfloat16)          \
  SYMBOL(aoti_torch_dtype_bool)              \
  SYMBOL(aoti_torch_dtype_complex128)        \
  SYMBOL(aoti_torch_dtype_complex32)         \
  SYMBOL(aoti_torch_dtype_complex64)         \
  SYMBOL(aoti_torch_dtype_float16)           \
  SYMBOL(aoti_torch_dtype_float32)           \
  SYMBOL(aoti_torch_dtype_float64)           \
  SYMBOL(aoti_torch_dtype_float8_e4m3fn)     \
  SYMBOL(aoti_torch_dtype_float8_e4m3fnuz)   \
  SYMBOL(aoti_torch_dtype_float8_e5m2)       \
  SYMBOL(aoti_torch_dtype_float8_e5m2fnuz)   \
  SYMBOL(aoti_torch_dtype_int16)             \
  SYMBOL(aoti_torch_dtype_int32)             \
  SYMBOL(aoti_torch_dtype_int64)             \
  SYMBOL(aoti_torch_dtype_int8)              \
  SYMBOL(aoti_torch_dtype_uint16)            \
  SYMBOL(aoti_torch_dtype_uint32)            \
  SYMBOL(aoti_torch_dtype_uint64)            \
  SYMBOL(aoti_torch_dtype_uint8)             \
  SYMBOL(aoti_torch_empty_strided)           \
  SYMBOL(aoti_torch_get_data_ptr)            \
  SYMBOL(aoti_torch_get_device_index)        \
  SYMBOL(aoti_torch_get_device_type)         \
  SYMBOL(aoti_torch_get_dim)                 \
  SYMBOL(aoti_torch_get_dtype)               \
  SYMBOL(aoti_torch_get_sizes)               \
  SYMBOL(aoti_torch_get_storage_offset)      \
  SYMBOL(aoti_torch_get_storage_size)        \
  SYMBOL(aoti_torch_get_strides)             \
  SYMBOL(aoti_torch_is_defined)              \
  SYMBOL(aoti_torch_library_def)             \
  SYMBOL(aoti_torch_library_init_fragment)   \
  SYMBOL(aoti_torch_library_init_impl)       \
  SYMBOL(torch_delete_list)                  \
  SYMBOL(torch_get_num_threads)              \
  SYMBOL(torch_library_impl)                 \
  SYMBOL(torch_list_get_item)                \
  SYMBOL(torch_list_size)                    \
  SYMBOL(torch_parallel_for)

// A function's name, and where it is. The names are of C: other libraries of this kind have slots of their own, hidden ones.
#define DECLARE_SLOT(name)                                               \
  extern "C" [[gnu::visibility("hidden")]] void* kernelpack_slot_##name; \
  void* kernelpack_slot_##name = nullptr;

#if defined(__x86_64__)
#define JUMP(name) "  jmp *kernelpack_slot_" name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "  adrp x16, kernelpack_slot_" name "\n  ldr x16, [x16, :lo12:kernelpack_slot_" name "]\n  br x16\n"
#else
#error "torch's functions are reached by a jump, which is written for x86-64 and aarch64"
#endif
#define DEFINE(name)                                                                                                    \
  asm(".text\n.globl " #name "\n.hidden " #name "\n.type " #name ", @function\n" #name ":\n" JUMP(#name) ".size " #name \
                                                                                                         ", . - " #name "\n");

KERNELPACK_TORCH_SYMBOLS(DECLARE_SLOT)
KERNELPACK_TORCH_SYMBOLS(DEFINE)

namespace kernelpack {
namespace {

bool is_here = false;

// What stands for a function of torch where there is no torch, and for what an older torch lacks.
int64_t absent() {
  return 0;
}

// Returns torch's library if the process has it. As a library that the program was linked with it may not be initialised yet:
// dlopen sees to that.
void* torch_library() {
  constexpr const char* kName = "libtorch_cpu.so";
  if (void* found = dlopen(kName, RTLD_LAZY | RTLD_NOLOAD)) {
    dlclose(found);
    return dlopen(kName, RTLD_LAZY);
  }
  return RTLD_DEFAULT;  // linked into the program
}

// Before the constructors of all other files.
[[gnu::constructor(101)]] void find_torch() {
  void* const torch = torch_library();
  const struct {
    const char* name;
    void** slot;
  } symbols[] = {
#define ROW(name) {#name, &kernelpack_slot_##name},
      KERNELPACK_TORCH_SYMBOLS(ROW)
#undef ROW
  };
  is_here = dlsym(torch, symbols[0].name) != nullptr;
  for (const auto& [name, slot] : symbols) {
    void* const found = is_here ? dlsym(torch, name) : nullptr;
    *slot = found != nullptr ? found : reinterpret_cast<void*>(absent);
  }
#define TAKE(field, name) torch_functions.field = reinterpret_cast<decltype(torch_functions.field)>(kernelpack_slot_##name);
  TAKE(get_sizes, aoti_torch_get_sizes)
  TAKE(get_strides, aoti_torch_get_strides)
  TAKE(get_dim, aoti_torch_get_dim)
  TAKE(get_dtype, aoti_torch_get_dtype)
  TAKE(get_data_ptr, aoti_torch_get_data_ptr)
  TAKE(get_device_index, aoti_torch_get_device_index)
  TAKE(delete_tensor, aoti_torch_delete_tensor_object)
#undef TAKE
}

}  // namespace

bool torch_is_here() {
  return is_here;
}

}  // namespace kernelpack
