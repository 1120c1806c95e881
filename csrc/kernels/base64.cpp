// Decodes base64 images.
#include "kernels/base64.h"

#include <array>
#include <cstring>

namespace kernelpack {
namespace {

constexpr uint8_t kBad = 0xFF;

constexpr std::array<uint8_t, 256> make_table() {
  std::array<uint8_t, 256> table{};
  for (auto& entry : table) entry = kBad;
  const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (uint8_t i = 0; i < 64; ++i) table[static_cast<uint8_t>(alphabet[i])] = i;
  return table;
}

constexpr std::array<uint8_t, 256> kTable = make_table();

// Decodes `length` letters, whole groups of four, to three quarters as many bytes. Returns whether all were of the alphabet,
// which is asked once after the loop: one branch a group would be half of the time.
bool decode_groups(const char* text, size_t length, unsigned char* out) {
  const auto* letters = reinterpret_cast<const unsigned char*>(text);
  uint8_t seen = 0;
  for (size_t i = 0; i < length; i += 4, out += 3) {
    const uint8_t a = kTable[letters[i]], b = kTable[letters[i + 1]], c = kTable[letters[i + 2]], d = kTable[letters[i + 3]];
    seen = static_cast<uint8_t>(seen | a | b | c | d);
    out[0] = static_cast<unsigned char>(a << 2 | b >> 4);
    out[1] = static_cast<unsigned char>(b << 4 | c >> 2);
    out[2] = static_cast<unsigned char>(c << 6 | d);
  }
  return seen < 64;
}

}  // namespace

std::unique_ptr<unsigned char[]> decode(const Base64Image& image) {
  std::unique_ptr<unsigned char[]> bytes(new unsigned char[image.size + 3]);
  size_t written = 0;
  for (size_t chunk = 0; chunk < image.chunk_count; ++chunk) {  // every chunk holds whole groups of four
    const char* text = image.chunks[chunk];
    const size_t length = std::strlen(text);
    size_t padding = 0;
    while (chunk + 1 == image.chunk_count && padding < 2 && padding < length && text[length - 1 - padding] == '=') ++padding;
    const size_t groups = (length - padding) / 4 * 4;  // those without padding
    bool good = length % 4 == 0 && written + length / 4 * 3 - padding <= image.size;
    good = good && decode_groups(text, groups, bytes.get() + written);
    if (good && padding != 0) {
      char last[4] = {'A', 'A', 'A', 'A'};
      std::memcpy(last, text + groups, 4 - padding);
      good = decode_groups(last, 4, bytes.get() + written + groups / 4 * 3);
    }
    if (!good) throw Error("an embedded image is corrupt: it is not base64 of the size that its pack states");
    written += length / 4 * 3 - padding;
  }
  if (written != image.size) throw Error("an embedded image is corrupt: it is shorter than its pack states");
  bytes[written] = 0;
  return bytes;
}

}  // namespace kernelpack
