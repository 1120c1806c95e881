// Reads a GGUF file. Every length, count, type and place in it is checked before it is used: nothing outside the file is read,
// and nothing is allocated that the file does not hold.
#include "gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace lm {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

// By format: how many values a block holds, in how many bytes.
const std::map<int, std::pair<uint64_t, uint64_t>> kFormats = {
    // float32, float16, bfloat16; Q4_0, Q4_1, Q5_0, Q5_1, Q8_0; Q4_K, Q5_K, Q6_K
    {0, {1, 4}},   {1, {1, 2}},   {30, {1, 2}},     {2, {32, 18}},    {3, {32, 20}},    {6, {32, 22}},
    {7, {32, 24}}, {8, {32, 34}}, {12, {256, 144}}, {13, {256, 176}}, {14, {256, 210}},
};

// Kinds of values, and the least bytes of one, by the file's number of its type.
enum Kind { kUnsigned, kSigned, kFloat, kBool, kText, kArray };
constexpr Kind kKinds[] = {kUnsigned, kSigned, kUnsigned, kSigned,   kUnsigned, kSigned, kFloat,
                           kBool,     kText,   kArray,    kUnsigned, kSigned,   kFloat};
constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// What of the file is not read yet.
class Cursor {
 public:
  Cursor(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  std::string part = "the header";  // what is read, for errors

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    std::ostringstream text;
    text << path_ << ": at byte " << at_ << ", in " << part << ": ";
    (text << ... << what);
    throw std::runtime_error(text.str());
  }
  std::string_view bytes(uint64_t size) {
    if (size > left()) fail(size, " bytes are wanted, the file has ", left(), " more");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return bytes(number<uint64_t>()); }
  int64_t integer(uint32_t type) {
    int64_t value = 0;
    const size_t unused = 64 - 8 * kBytes[type];  // bits
    std::memcpy(&value, bytes(kBytes[type]).data(), kBytes[type]);
    if (kKinds[type] == kSigned) return value << unused >> unused;
    if (value < 0) fail(static_cast<uint64_t>(value), " is more than an int64 holds");
    return kKinds[type] == kBool ? value != 0 : value;
  }
  double real(uint32_t type) { return kBytes[type] == 4 ? number<float>() : number<double>(); }
  uint32_t type() {
    const auto type = number<uint32_t>();
    if (type >= std::size(kKinds)) fail("a value of type ", type, ", expected 0 to 12");
    return type;
  }

 private:
  const std::string& path_;
  std::string_view bytes_;
  size_t at_ = 0;
};

Gguf::Field read_array(Cursor& file) {
  const uint32_t type = file.type();
  if (kKinds[type] == kArray) file.fail("an array of arrays, expected one of numbers or texts");
  const auto count = file.number<uint64_t>();
  if (count > file.left() / kBytes[type]) {
    file.fail("an array of ", count, " values of ", kBytes[type], " bytes or more, the file has ", file.left(), " bytes more");
  }
  const auto fill = [&](auto values, auto read) {
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.push_back(read());
    return values;
  };
  if (kKinds[type] == kText) return fill(std::vector<std::string_view>(), [&] { return file.text(); });
  if (kKinds[type] == kFloat) return fill(std::vector<double>(), [&] { return file.real(type); });
  return fill(std::vector<int64_t>(), [&] { return file.integer(type); });
}

Gguf::Field read_value(Cursor& file) {
  const uint32_t type = file.type();
  switch (kKinds[type]) {
    case kArray:
      return read_array(file);
    case kText:
      return file.text();
    case kFloat:
      return file.real(type);
    case kBool:
      return file.integer(type) != 0;
    default:
      return file.integer(type);
  }
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
  if (row % block != 0)
    file.fail("rows of ", row, " values, expected a multiple of ", block, ", a block of format ", tensor.format);
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

  std::vector<std::pair<uint64_t, uint64_t>> places;  // offset and bytes
  std::vector<std::pair<const std::string, GgufTensor>*> placed;
  for (uint64_t i = 0; i < tensors; ++i) {
    file.part = "the name of a tensor";
    std::string name(file.text());
    file.part = "tensor " + shown(name);
    const auto [entry, is_new] = tensors_.try_emplace(std::move(name));
    if (!is_new) file.fail("another tensor has this name");
    const uint64_t size = read_tensor(file, entry->second), offset = file.number<uint64_t>();
    if (offset % alignment != 0) file.fail("an offset of ", offset, ", expected a multiple of ", alignment);
    places.emplace_back(offset, size);
    placed.push_back(&*entry);
  }
  const uint64_t start = (file.at() + alignment - 1) & -static_cast<uint64_t>(alignment);
  const uint64_t room = start <= bytes.size() ? bytes.size() - start : 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [offset, size] = places[i];
    file.part = "tensor " + shown(placed[i]->first);
    if (offset > room || size > room - offset) {
      file.fail("its ", size, " bytes at offset ", offset, " are not in the file, which has ", room, " bytes of tensors");
    }
    placed[i]->second.data = bytes.substr(start + offset, size);
  }
}

void Gguf::refuse(const std::string& what) const {
  throw std::runtime_error(path_ + ": " + what);
}

template <class T>
const T& Gguf::value(const std::string& name, const char* kind) const {
  const auto found = fields_.find(name);
  if (found == fields_.end()) refuse("field " + shown(name) + " is missing");
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) refuse("field " + shown(name) + " is not " + kind);
  return *value;
}

bool Gguf::has(const std::string& name) const {
  return fields_.contains(name);
}
int64_t Gguf::integer(const std::string& name) const {
  return value<int64_t>(name, "an integer");
}
std::string_view Gguf::text(const std::string& name) const {
  return value<std::string_view>(name, "a text");
}
double Gguf::number(const std::string& name) const {
  const auto found = fields_.find(name);
  const bool is_integer = found != fields_.end() && std::holds_alternative<int64_t>(found->second);
  return is_integer ? static_cast<double>(integer(name)) : value<double>(name, "a number");
}
const std::vector<std::string_view>& Gguf::texts(const std::string& name) const {
  return value<std::vector<std::string_view>>(name, "an array of texts");
}
const std::vector<int64_t>& Gguf::integers(const std::string& name) const {
  return value<std::vector<int64_t>>(name, "an array of integers");
}

const GgufTensor& Gguf::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse("tensor " + shown(name) + " is missing");
  const int format = found->second.format;
  if (!kFormats.contains(format))
    refuse("tensor " + shown(name) + " has format " + std::to_string(static_cast<uint32_t>(format)) + ", which is not known");
  return found->second;
}

}  // namespace lm
