// Reads numbers and texts from a file's bytes, one after the other. Each is checked: nothing outside the bytes is read.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lm {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

class Cursor {
 public:
  // Both must outlive this object.
  Cursor(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  std::string part = "the header";  // what is read, for errors

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  // Throws std::runtime_error: the file's name, the place, and what is wrong there.
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
  // An integer of 1, 2, 4 or 8 bytes.
  int64_t integer(size_t size, bool is_signed) {
    int64_t value = 0;
    std::memcpy(&value, bytes(size).data(), size);
    if (is_signed) return value << (64 - 8 * size) >> (64 - 8 * size);
    if (value < 0) fail(static_cast<uint64_t>(value), " is more than an int64 holds");
    return value;
  }
  double real(size_t size) { return size == sizeof(float) ? number<float>() : number<double>(); }
  // A text after its size.
  std::string_view text() { return bytes(number<uint64_t>()); }

 private:
  const std::string& path_;
  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace lm
