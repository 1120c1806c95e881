// Reads a GGUF file. Every length, count, type and place in it is checked before it is used: nothing outside the file is read,
// and nothing is allocated that the file does not hold.
#include "gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "cursor.h"

namespace lm {
namespace {

// By format: how many values a block holds, in how many bytes.
const std::map<int, std::pair<uint64_t, uint64_t>> kFormats = {
    // float32, float16, bfloat16; Q4_0, Q4_1, Q5_0, Q5_1, Q8_0; Q4_K, Q5_K, Q6_K
    {0, {1, 4}},   {1, {1, 2}},   {30, {1, 2}},     {2, {32, 18}},    {3, {32, 20}},    {6, {32, 22}},
    {7, {32, 24}}, {8, {32, 34}}, {12, {256, 144}}, {13, {256, 176}}, {14, {256, 210}},
};

// By the number of a type: (u)nsigned, (s)igned, (f)loat, (b)ool, (t)ext or (a)rray, and the least bytes of a value.
constexpr std::string_view kKinds = "usususfbtausf";
constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

uint32_t read_type(Cursor& file) {
  const auto type = file.number<uint32_t>();
  if (type >= kKinds.size()) file.fail("a value of type ", type, ", expected 0 to 12");
  return type;
}

Gguf::Field read_value(Cursor& file) {
  uint32_t type = read_type(file);
  const bool is_array = kKinds[type] == 'a';
  if (is_array) type = read_type(file);
  const char kind = kKinds[type];
  const size_t bytes = kBytes[type];
  const uint64_t count = is_array ? file.number<uint64_t>() : 1;
  if (kind == 'a') file.fail("an array of arrays, expected one of numbers or texts");
  if (is_array && count > file.left() / bytes) {
    file.fail("an array of ", count, " values of ", bytes, " bytes or more, the file has ", file.left(), " bytes more");
  }
  const auto read = [&](auto one) -> Gguf::Field {
    if (!is_array) return one();
    std::vector<decltype(one())> values;
    values.reserve(count);
    while (values.size() < count) values.push_back(one());
    return values;
  };
  if (kind == 't') return read([&] { return file.text(); });
  if (kind == 'f') return read([&] { return file.real(bytes); });
  if (kind == 'b' && !is_array) return file.integer(bytes, false) != 0;
  return read([&] { return file.integer(bytes, kind == 's'); });
}

// Reads a tensor's shape and format into it. Returns how many bytes it takes; 0 where that is not known.
uint64_t read_tensor(Cursor& file, GgufTensor& tensor) {
  const auto dimensions = file.number<uint32_t>();
  if (dimensions > 4) file.fail(dimensions, " dimensions, expected 4 or fewer");
  int64_t values = 1, bytes = 0;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = file.number<int64_t>();
    if (size < 1 || __builtin_mul_overflow(values, size, &values)) file.fail("a dimension of ", size, " is 0 or too large");
    tensor.shape.insert(tensor.shape.begin(), size);
  }
  tensor.format = static_cast<int>(file.number<uint32_t>());
  const auto format = kFormats.find(tensor.format);
  if (format == kFormats.end()) return 0;
  const auto [block, block_bytes] = format->second;
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % block != 0) file.fail("rows of ", row, " values, expected a multiple of ", block, " for format ", tensor.format);
  if (__builtin_mul_overflow(values / block, block_bytes, &bytes)) file.fail(values, " values are too many");
  return bytes;
}

}  // namespace

std::string shown(std::string_view text) {
  std::string begin(text.substr(0, 100));
  for (char& c : begin) c = c < ' ' || c > '~' ? '?' : c;
  return "'" + begin + (text.size() > 100 ? "...'" : "'");
}

Gguf::Gguf(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) refuse(std::strerror(errno));
  struct stat about{};
  const bool is_file = fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
  const auto size = static_cast<size_t>(about.st_size);
  void* memory = is_file ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (memory == MAP_FAILED) refuse("it is empty, or cannot be mapped into memory; expected a GGUF file");
  mapping_.reset(memory, [size](const void* mapped) { munmap(const_cast<void*>(mapped), size); });
  read({static_cast<const char*>(memory), size});
}

Gguf::Gguf(std::string_view bytes) {
  read(bytes);
}

void Gguf::read(std::string_view bytes) {
  Cursor file(path_, bytes);
  if (!bytes.starts_with("GGUF")) file.fail("it does not begin with GGUF: this is another kind of file");
  file.bytes(4);
  const auto version = file.number<uint32_t>();
  if (version != 2 && version != 3) file.fail("version ", version, ", expected 2 or 3 of a little-endian file");
  const auto tensors = file.number<uint64_t>(), fields = file.number<uint64_t>();
  for (uint64_t i = 0; i < fields; ++i) {
    file.part = "the name of a field";
    std::string name(file.text());
    file.part = "field " + shown(name);
    if (!fields_.emplace(std::move(name), read_value(file)).second) file.fail("another field has this name");
  }
  const int64_t alignment = has("general.alignment") ? integer("general.alignment") : 32;
  file.part = "field 'general.alignment'";
  if (alignment < 8 || (alignment & (alignment - 1)) != 0) file.fail(alignment, ", expected a power of two, 8 or more");

  std::vector<std::tuple<std::string, GgufTensor*, uint64_t, uint64_t>> places;  // name, offset and bytes
  for (uint64_t i = 0; i < tensors; ++i) {
    file.part = "the name of a tensor";
    std::string name(file.text());
    file.part = "tensor " + shown(name);
    const auto [entry, is_new] = tensors_.try_emplace(std::move(name));
    if (!is_new) file.fail("another tensor has this name");
    const uint64_t size = read_tensor(file, entry->second), offset = file.number<uint64_t>();
    if (offset % alignment != 0) file.fail("an offset of ", offset, ", expected a multiple of ", alignment);
    places.emplace_back(file.part, &entry->second, offset, size);
  }
  const uint64_t start = (file.at() + alignment - 1) & -static_cast<uint64_t>(alignment);
  const uint64_t room = start <= bytes.size() ? bytes.size() - start : 0;
  for (const auto& [part, tensor, offset, size] : places) {
    file.part = part;
    if (offset > room || size > room - offset) {
      file.fail("its ", size, " bytes at offset ", offset, " are not in the file, which has ", room, " bytes of tensors");
    }
    tensor->data = bytes.substr(start + offset, size);
  }
}

const GgufTensor& Gguf::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse("tensor " + shown(name) + " is missing");
  const GgufTensor& tensor = found->second;
  const auto format = std::to_string(static_cast<uint32_t>(tensor.format));
  if (!kFormats.contains(tensor.format)) refuse("tensor " + shown(name) + " has format " + format + ", which is not known");
  return tensor;
}

}  // namespace lm
