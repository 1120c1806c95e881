// Finds characters in bytes that may be no UTF-8, as Unicode's table of well-formed sequences has them (Unicode 15, table 3-7).
#pragma once

#include <cstddef>
#include <string_view>

namespace lm {

enum class Utf8 { whole, wrong, cut };

// The character that a text begins with. `wrong` is what one U+FFFD stands for: the longest part that could begin a character.
// `cut` is such a part that the text ends with.
struct Character {
  Utf8 kind;
  size_t size;  // in bytes
};

// Returns the first character of a text that is not empty.
inline Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {Utf8::whole, 1};
  if (first < 0xC2 || first > 0xF4) return {Utf8::wrong, 1};
  const size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // the second byte's range is narrower where a shorter form, a surrogate or a number above U+10FFFF would follow
  unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; ++i, low = 0x80, high = 0xBF) {
    if (i == text.size()) return {Utf8::cut, i};
    if (byte(i) < low || byte(i) > high) return {Utf8::wrong, i};
  }
  return {Utf8::whole, size};
}

}  // namespace lm
