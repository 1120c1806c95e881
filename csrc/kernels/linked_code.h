// Whether the code that was linked into this library, its kernels for CPUs among it, is what the build wrote. For the launcher
// of linked kernels alone: its object holds what the build states.
//
// The checksum is zlib's CRC-32, taken sixteen bytes at a time (M. Kounavis, F. Berry, "Novel Table Lookup-Based Algorithms for
// High-Performance CRC Generation", 2008).
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace kernelpack::linked_code {

// A section of the library.
struct Range {
  uint64_t address;  // from where the library begins in memory
  uint64_t offset;   // in its file
  uint64_t size;     // 0: there is none
};

// What kernelpack/pack/linked_code.py writes into the linked library, which it finds by the name of the section.
struct Stated {
  Range ranges[2];
  uint32_t checksum;
  uint32_t is_stated;
};

__attribute__((section("kernelpack_code"), used)) static const volatile Stated stated = {};

using Table = std::array<std::array<uint32_t, 256>, 16>;

constexpr Table make_table() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320U : 0);
    table[0][byte] = value;
  }
  for (size_t i = 1; i < table.size(); ++i) {
    for (size_t byte = 0; byte < 256; ++byte) table[i][byte] = table[i - 1][byte] >> 8 ^ table[0][table[i - 1][byte] & 0xFF];
  }
  return table;
}

// Goes on from the checksum of what came before.
inline uint32_t crc32(uint32_t before, const unsigned char* bytes, size_t size) {
  static constexpr Table table = make_table();
  uint32_t value = ~before;
  for (; size >= 16; size -= 16, bytes += 16) {
    uint64_t words[2];
    std::memcpy(words, bytes, sizeof words);  // all machines here are little-endian
    words[0] ^= value;
    value = 0;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) value ^= table[15 - i][words[i / 8] >> 8 * (i % 8) & 0xFF];
  }
  for (; size > 0; --size, ++bytes) value = value >> 8 ^ table[0][(value ^ *bytes) & 0xFF];
  return ~value;
}

inline uint32_t checksum_of_memory(const unsigned char* library) {
  uint32_t result = 0;
  for (const volatile Range& range : stated.ranges) result = crc32(result, library + range.address, range.size);
  return result;
}

// Returns 0 where the file cannot be read.
inline uint32_t checksum_of_file(const char* path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rbe"), std::fclose);
  uint32_t result = 0;
  for (const volatile Range& range : stated.ranges) {
    std::vector<unsigned char> bytes(range.size);
    if (file == nullptr || std::fseek(file.get(), static_cast<long>(range.offset), SEEK_SET) != 0) return 0;
    if (std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return 0;
    result = crc32(result, bytes.data(), bytes.size());
  }
  return result;
}

// Returns why no kernel of this library is run, or an empty text.
inline std::string find_damage() {
  if (stated.is_stated == 0) return "";
  Dl_info self{};
  if (dladdr(const_cast<const Stated*>(&stated), &self) == 0) return "";
  const uint32_t wanted = stated.checksum;
  // what a debugger writes into code is in memory alone: what counts then is the file
  if (checksum_of_memory(static_cast<const unsigned char*>(self.dli_fbase)) == wanted) return "";
  if (checksum_of_file(self.dli_fname) == wanted) return "";
  return std::string(self.dli_fname) +
         " was altered after it was built: the checksum of its code differs, and no kernel of it is run"
         "\n  to fix: install the library again, or build it again";
}

// Throws Error where code or constants of this library differ from the checksum that the build wrote into it. The first call
// reads all of them; a library that others linked has no checksum, and is not compared.
inline void check() {
  static const std::string damage = find_damage();
  if (!damage.empty()) throw Error(damage);
}

}  // namespace kernelpack::linked_code
