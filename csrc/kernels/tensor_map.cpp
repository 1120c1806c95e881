// Reads what the compiler recorded of tensor maps, evaluates it for a launch, and has the driver encode the maps.
#include "kernels/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "kernels/cuda_driver.h"

namespace kernelpack::cuda {
namespace {

constexpr int64_t kAlignment = 16;                // of addresses and strides, in bytes
constexpr int64_t kMaxSize = int64_t{1} << 32;    // cuTensorMapEncodeTiled
constexpr int64_t kMaxStride = int64_t{1} << 40;  // likewise, exclusive
constexpr size_t kPaddingBytes = 64;
constexpr size_t kMaxDepth = 16;

struct Element {
  const char* name;
  int type;  // CUtensorMapDataType of cuda.h
  int64_t width;
};
constexpr Element kElements[] = {{"i8", 0, 1},  {"f8E4M3FN", 0, 1}, {"f8E5M2", 0, 1}, {"i16", 1, 2}, {"i32", 3, 4},
                                 {"i64", 5, 8}, {"f16", 6, 2},      {"f32", 7, 4},    {"f64", 8, 8}, {"bf16", 9, 2}};
constexpr int kL2Promotion128 = 2;

[[noreturn]] void malformed(const std::string& text) {
  throw Error("the record of a tensor map is malformed: " + text + "\n  to fix: build the library again");
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    const size_t start = part.find_first_not_of(' ');
    if (start != std::string::npos) parts.push_back(part.substr(start));
  }
  return parts;
}

int64_t integer(const std::string& text) {
  try {
    size_t used = 0;
    const int64_t value = std::stoll(text, &used);
    if (used == text.size()) return value;
  } catch (const std::exception&) {
  }
  malformed(text);
}

int64_t read(char letter, const void* parameter) {
  const auto as = [parameter](auto value) {
    std::memcpy(&value, parameter, sizeof(value));
    return static_cast<int64_t>(value);
  };
  switch (letter) {
    case 'b':
      return as(int8_t{});
    case 'h':
      return as(int16_t{});
    case 'i':
      return as(int32_t{});
    default:
      return as(int64_t{});
  }
}

// Sums that 64 bits do not hold wrap, as kernels' do.
int64_t apply(char operation, int64_t a, int64_t b) {
  const auto left = static_cast<uint64_t>(a);
  const auto right = static_cast<uint64_t>(b);
  switch (operation) {
    case '+':
      return static_cast<int64_t>(left + right);
    case '-':
      return static_cast<int64_t>(left - right);
    case '*':
      return static_cast<int64_t>(left * right);
    case '/':
      return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(-left) : a / b;
    case '%':
      return b == 0 ? a : b == -1 ? 0 : a % b;
    case '>':
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

// Fills the part of a context's `padding_memory` that reads as zero, or as NaN, for a launch, and returns it.
uint64_t filled(uint64_t memory, bool nan, void* stream) {
  const uint64_t address = memory + (nan ? kPaddingBytes : 0);
  driver().check(driver().MemsetD8Async(address, nan ? 0xFF : 0, kPaddingBytes, stream), "cuMemsetD8Async",
                 "describing an empty tensor");
  return address;
}

template <class Number>
std::string list(const Number* values, uint32_t count) {  // outermost axis first, as kernels have them
  std::string text;
  for (uint32_t i = count; i-- > 0;) text += std::to_string(values[i]) + (i == 0 ? "" : ", ");
  return "[" + text + "]";
}

}  // namespace

Expression::Expression(const std::string& text, const std::string& letters) {
  size_t depth = 0;
  for (const std::string& word : split(text, ' ')) {
    if (word[0] == '$') {
      const int64_t number = integer(word.substr(1));
      if (number < 0 || number >= static_cast<int64_t>(letters.size())) malformed(text);
      const char letter = letters[static_cast<size_t>(number)];
      if (std::strchr("bhilp", letter) == nullptr) malformed(text);
      steps_.push_back({letter, number});
      ++depth;
    } else if (word.size() == 1 && std::strchr("+-*/%", word[0]) != nullptr) {
      steps_.push_back({word[0], 0});
      if (depth-- < 2) malformed(text);
    } else if (word == ">?" || word == "<?") {
      steps_.push_back({word[0], 0});
      if (depth-- < 2) malformed(text);
    } else {
      steps_.push_back({'#', integer(word)});
      ++depth;
    }
    if (depth > kMaxDepth) malformed(text);
  }
  if (depth != 1) malformed(text);
}

int64_t Expression::operator()(void* const* params) const {
  int64_t stack[kMaxDepth + 1];
  size_t depth = 0;
  for (const Step& step : steps_) {
    if (step.what == '#') {
      stack[depth++] = step.value;
    } else if (std::strchr("bhilp", step.what) != nullptr) {
      stack[depth++] = read(step.what, params[step.value]);
    } else {
      --depth;
      stack[depth - 1] = apply(step.what, stack[depth - 1], stack[depth]);
    }
  }
  return stack[0];
}

TensorMaps::TensorMaps(const char* text) {
  if (text == nullptr || *text == '\0') return;
  std::vector<std::string> lines = split(text, '\n');
  if (lines.empty()) malformed(text);
  const std::string letters = lines[0] == "-" ? "" : lines[0];
  parameter_count_ = letters.size();
  for (size_t i = 1; i < lines.size(); ++i) rows_.push_back(parse(lines[i], letters));
}

TensorMaps::Row TensorMaps::parse(const std::string& line, const std::string& letters) {
  Row row;
  row.text = line;
  const std::vector<std::string> fields = split(line, ';');
  if (fields.size() != 7) malformed(line);
  const auto values = [&](size_t field, const char* name) {
    const std::string& text = fields[field];
    const size_t colon = text.find(':');
    if (colon == std::string::npos || text.substr(0, colon) != name) malformed(line);
    std::vector<std::string> found = split(text.substr(colon + 1), ',');
    std::reverse(found.begin(), found.end());
    return found;
  };
  const auto* element =
      std::find_if(std::begin(kElements), std::end(kElements), [&](const Element& known) { return fields[0] == known.name; });
  if (element == std::end(kElements)) malformed(line);
  row.element = element->type;
  row.width = element->width;
  const auto base = values(1, "base");
  const auto sizes = values(2, "sizes");
  const auto strides = values(3, "strides");
  const auto box = values(4, "box");
  const auto swizzle = values(5, "swizzle");
  const auto padding = values(6, "padding");
  if (base.size() != 1 || sizes.empty() || sizes.size() > 5 || strides.size() + 1 != sizes.size() ||
      box.size() != sizes.size() || swizzle.size() != 1 || padding.size() != 1) {
    malformed(line);
  }
  row.rank = static_cast<uint32_t>(sizes.size());
  row.base = Expression(base[0], letters);
  for (size_t i = 0; i < sizes.size(); ++i) row.sizes[i] = Expression(sizes[i], letters);
  for (size_t i = 0; i < strides.size(); ++i) row.strides[i] = Expression(strides[i], letters);
  for (size_t i = 0; i < box.size(); ++i) row.box[i] = static_cast<uint32_t>(integer(box[i]));
  const int64_t bytes = integer(swizzle[0]);
  row.swizzle = bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0;
  row.pads_with_nan = padding[0] == "nan";
  return row;
}

void TensorMaps::encode(const char* kernel, void* const* params, uint64_t padding, void* stream, TensorMap* maps) const {
  for (size_t i = 0; i < rows_.size(); ++i) encode(kernel, rows_[i], params, padding, stream, &maps[i]);
}

uint64_t padding_memory(const std::string& doing) {
  uint64_t memory = 0;
  driver().check(driver().MemAlloc(&memory, 2 * kPaddingBytes), "cuMemAlloc", doing);
  return memory;
}

void TensorMaps::encode(const char* kernel, const Row& row, void* const* params, uint64_t padding, void* stream,
                        TensorMap* map) {
  static const uint32_t kOnes[5] = {1, 1, 1, 1, 1};
  auto address = static_cast<uint64_t>(row.base(params));
  uint64_t sizes[5];
  uint64_t strides[4];
  bool is_empty = false;
  std::string wrong;
  if (address % kAlignment != 0) wrong = "its address is no multiple of 16";
  for (uint32_t axis = 0; axis < row.rank; ++axis) {
    const int64_t size = row.sizes[axis](params);
    if (size < 0 || size > kMaxSize) wrong = "its sizes are not between 0 and 2^32";
    is_empty = is_empty || size == 0;
    sizes[axis] = static_cast<uint64_t>(size);
  }
  for (uint32_t axis = 0; axis + 1 < row.rank; ++axis) {
    const int64_t elements = row.strides[axis](params);
    // an axis of one element is never walked along, nor is an empty tensor: the stride may be anything
    int64_t bytes = kAlignment;
    if (!is_empty && sizes[axis + 1] != 1 && __builtin_mul_overflow(elements, row.width, &bytes)) bytes = kMaxStride;
    if (bytes % kAlignment != 0) wrong = "its strides are no multiples of 16 bytes";
    if (bytes < 0 || bytes >= kMaxStride) wrong = "its strides are not between 0 and 2^40 bytes";
    strides[axis] = static_cast<uint64_t>(bytes);
  }
  if (is_empty && wrong.empty()) {
    address = filled(padding, row.pads_with_nan, stream);
    std::fill_n(sizes, row.rank, 1);
    std::fill_n(strides, row.rank - 1, kAlignment);
  }
  Result result = 0;
  if (wrong.empty()) {
    result = driver().TensorMapEncodeTiled(map, row.element, row.rank, reinterpret_cast<void*>(address), sizes, strides,
                                           row.box, kOnes, 0, row.swizzle, kL2Promotion128, row.pads_with_nan ? 1 : 0);
    if (result == 0) return;
    wrong = "the driver refuses it";
  }
  const std::string tensor = "a tensor of sizes " + list(sizes, row.rank) + ", strides " + list(strides, row.rank - 1) +
                             " bytes, in blocks of " + list(row.box, row.rank);
  if (result != 0) driver().check(result, "cuTensorMapEncodeTiled", std::string("describing ") + tensor + " for " + kernel);
  throw Error(std::string(kernel) + " cannot describe " + tensor + " to the GPU: " + wrong +
              "\n  to fix: pass a tensor that begins at a multiple of 16 bytes, with strides that are multiples of 16 bytes");
}

}  // namespace kernelpack::cuda
