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

}  // namespace

std::unique_ptr<unsigned char[]> decode(const Base64Image& image) {
  std::unique_ptr<unsigned char[]> bytes(new unsigned char[image.size + 3]);
  size_t written = 0;
  for (size_t chunk = 0; chunk < image.chunk_count; ++chunk) {  // every chunk holds whole groups of four
    const char* text = image.chunks[chunk];
    const size_t length = std::strlen(text);
    bool good = length % 4 == 0;
    for (size_t i = 0; good && i < length; i += 4) {
      const bool last = chunk + 1 == image.chunk_count && i + 4 == length;
      const int padding = last ? (text[i + 3] == '=') + (text[i + 2] == '=') : 0;
      uint32_t group = 0;
      for (int k = 0; k < 4; ++k) {
        const uint8_t value = k >= 4 - padding ? 0 : kTable[static_cast<uint8_t>(text[i + k])];
        good = good && value != kBad;
        group = group << 6 | (value & 63);
      }
      good = good && written + 3 - padding <= image.size;
      if (!good) break;
      bytes[written] = static_cast<unsigned char>(group >> 16);
      if (padding < 2) bytes[written + 1] = static_cast<unsigned char>(group >> 8 & 0xFF);
      if (padding < 1) bytes[written + 2] = static_cast<unsigned char>(group & 0xFF);
      written += 3 - padding;
    }
    if (!good) throw Error("an embedded image is corrupt: it is not base64 of the size that its pack states");
  }
  if (written != image.size) throw Error("an embedded image is corrupt: it is shorter than its pack states");
  bytes[written] = 0;
  return bytes;
}

}  // namespace kernelpack
