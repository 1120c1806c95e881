// Writes the parameters of launches from Python as kernels read them, with a check where a type is too narrow for the value.
#include "python/loaded_kernel.h"

#include <cmath>
#include <cstring>

#include "nativert/torch_profiler.h"
#include "nativert/torch_threads.h"
#include "python/launchers.h"

namespace kernelpack {
namespace {

// Returns the bits of the 16-bit float with `exponent` and `mantissa` bits that is nearest to a number, ties to even.
uint16_t narrow_float(double number, int exponent, int mantissa) {
  const int bias = (1 << (exponent - 1)) - 1;
  const auto sign = static_cast<uint16_t>(std::signbit(number) ? 0x8000 : 0);
  const double size = std::fabs(number);
  const int infinity = ((1 << exponent) - 1) << mantissa;
  if (size == 0) return sign;
  if (std::isnan(number)) return static_cast<uint16_t>(sign | infinity | 1 << (mantissa - 1));
  if (std::isinf(number)) return static_cast<uint16_t>(sign | infinity);
  int power = 0;
  std::frexp(size, &power);  // size = f * 2^power, 0.5 <= f < 1
  const int lowest = 1 - bias;
  const int step = (power - 1 < lowest ? lowest : power - 1) - mantissa;  // of the last place
  const auto units = static_cast<int64_t>(std::nearbyint(std::ldexp(size, -step)));
  // adding the exponent lets a carry move into it; subnormal numbers have none
  const int64_t bits = units + (static_cast<int64_t>(step + mantissa - lowest) << mantissa);
  return static_cast<uint16_t>(sign | (bits > infinity ? infinity : bits));
}

// A launch's parameters, on the stack where they are few.
template <class Element, size_t few>
class Row {
 public:
  explicit Row(size_t count) : many_(count > few ? count : 0) {}
  Element* data() { return many_.empty() ? few_ : many_.data(); }

 private:
  Element few_[few];
  std::vector<Element> many_;
};

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace

LoadedKernel::LoadedKernel(const std::string& backend, std::string device_type, std::string name, std::string entry,
                           std::string target, const std::variant<uintptr_t, std::string>& image,
                           const std::vector<std::string>& types, int num_warps, int num_ctas, int64_t shared_memory,
                           double program_ns, std::string descriptors, bool launch_pdl, bool launch_cooperative_grid)
    : launcher_(launcher_of(backend)),
      device_type_(std::move(device_type)),
      name_(std::move(name)),
      entry_(std::move(entry)),
      target_(std::move(target)),
      descriptors_(std::move(descriptors)) {
  for (const std::string& type : types) kinds_.push_back(kind_of(type));
  const void* start = nullptr;
  if (const auto* address = std::get_if<uintptr_t>(&image)) {
    start = reinterpret_cast<const void*>(*address);
  } else {
    bytes_ = std::get<std::string>(image);
    const auto size = static_cast<uint32_t>(bytes_.size());
    image_.reset(new Image{reinterpret_cast<const unsigned char*>(bytes_.c_str()), size, size});
    start = image_.get();
  }
  kernel_.reset(new Kernel{name_.c_str(), entry_.c_str(), target_.c_str(), start, num_warps, num_ctas, shared_memory,
                           program_ns, descriptors_.c_str(), launch_pdl, launch_cooperative_grid});
}

LoadedKernel::Kind LoadedKernel::kind_of(const std::string& type) {
  static const std::pair<const char*, Kind> kNames[] = {{"i1", Kind::i1},     {"i8", Kind::i8},   {"i16", Kind::i16},
                                                        {"i32", Kind::i32},   {"i64", Kind::i64}, {"f16", Kind::f16},
                                                        {"bf16", Kind::bf16}, {"f32", Kind::f32}, {"f64", Kind::f64}};
  if (type.rfind("!tt.ptr", 0) == 0) return Kind::pointer;
  for (const auto& [name, kind] : kNames) {
    if (type == name) return kind;
  }
  throw Error("a kernel parameter of type " + type + " cannot be passed from Python");
}

void LoadedKernel::write(size_t parameter, const Argument& argument, void* slot) const {
  const auto put = [slot](auto value) { std::memcpy(slot, &value, sizeof(value)); };
  const Kind kind = kinds_[parameter];
  if (kind >= Kind::f16) {
    const double number = argument.form == Argument::Form::number ? argument.number : static_cast<double>(argument.integer);
    if (kind == Kind::f32) return put(static_cast<float>(number));
    if (kind == Kind::f64) return put(number);
    return put(kind == Kind::f16 ? narrow_float(number, 5, 10) : narrow_float(number, 8, 7));
  }
  if (argument.form == Argument::Form::number) {
    throw Error(name_ + ": run-time argument " + std::to_string(parameter) + " is " + std::to_string(argument.number) +
                ", the kernel expects an integer" + (kind == Kind::pointer ? ", the address of a tensor" : ""));
  }
  put(argument.integer);  // little endian: narrower types read the first bytes
  const int bits = kind == Kind::i8 ? 8 : kind == Kind::i16 ? 16 : kind == Kind::i32 ? 32 : 64;
  // signed and unsigned types have the same name
  if (bits < 64 && (argument.integer < -(int64_t{1} << (bits - 1)) || argument.integer >= int64_t{1} << bits)) {
    throw Error(name_ + ": run-time argument " + std::to_string(parameter) + " is " + std::to_string(argument.integer) +
                ", which does not fit " + std::to_string(bits) + " bits\n  to fix: annotate the parameter tl.int64");
  }
}

void LoadedKernel::launch(int device, void* stream, const Grid& grid, const Argument* arguments) {
  const size_t count = kinds_.size();
  Row<uint64_t, 32> slots(count);
  Row<void*, 32> params(count);
  for (size_t i = 0; i < count; ++i) {
    params.data()[i] = &slots.data()[i];
    write(i, arguments[i], &slots.data()[i]);
  }
  void* where = launcher_.takes_threads ? static_cast<void*>(torch_threads()) : stream;
  if (launcher_.current_stream != nullptr && launcher_.current_stream(device, &where) != 0) {
    throw Error(name_ + ": the backend " + launcher_.backend + " has no stream to launch on");
  }
  const WithoutGil released;
  if (!launcher_.takes_threads) return launcher_.launch(*kernel_, device, where, grid, params.data());
  const ProfiledLaunch shown(kernel_->name);
  launcher_.launch(*kernel_, device, where, grid, params.data());
}

}  // namespace kernelpack
