// Images that are compressed, each in terms of another.
#include <zstd.h>

#include <string>
#include <vector>

#include "expect.h"
#include "kernels/zstd_image.h"

using namespace kernelpack;

namespace {

std::string code(int seed) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string((i * 7919 + seed) % 1009) + (i % 97 == seed ? "different" : "alike");
  return text;
}

std::vector<unsigned char> frame(const std::string& text, const std::string& like) {
  std::vector<unsigned char> made(ZSTD_compressBound(text.size()));
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_refPrefix(context, like.data(), like.size());
  made.resize(ZSTD_compress2(context, made.data(), made.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return made;
}

Image image_of(const std::vector<unsigned char>& made, size_t size, const Image* like = nullptr) {
  return {made.data(), static_cast<uint32_t>(made.size()), static_cast<uint32_t>(size), unpack_zstd, like};
}

std::string unpacked(const Image& image) {
  const ImageBytes bytes(image);
  EXPECT(bytes.get()[image.size] == 0);
  return std::string(reinterpret_cast<const char*>(bytes.get()), image.size);
}

TEST(images_are_unpacked_in_terms_of_others) {
  const std::string texts[] = {code(1), code(2), code(3)};
  const auto first = frame(texts[0], ""), second = frame(texts[1], texts[0]), third = frame(texts[2], texts[1]);
  EXPECT(second.size() < first.size() / 2);
  const Image a = image_of(first, texts[0].size());
  const Image b = image_of(second, texts[1].size(), &a);
  const Image c = image_of(third, texts[2].size(), &b);
  EXPECT(unpacked(a) == texts[0]);
  EXPECT(unpacked(c) == texts[2]);
  EXPECT(unpacked(b) == texts[1]);
  const std::vector<unsigned char> nothing = frame("", "");
  EXPECT(unpacked(image_of(nothing, 0)).empty());
}

TEST(images_as_they_are_need_no_unpacking) {
  const unsigned char bytes[] = "image";
  EXPECT(ImageBytes(Image{bytes, 5, 5}).get() == bytes);
}

TEST(damaged_images_are_refused) {
  const std::string text = code(1), other = code(2);
  const auto good = frame(text, "");
  const auto refused = [](const Image& image) {
    expect_error("an embedded image is damaged", [&] { ImageBytes bytes(image); });
  };
  for (size_t at = 0; at < good.size(); at += 11) {
    auto bad = good;
    bad[at] ^= 0x20;
    // a changed header may still say the same: only what is unpacked counts
    try {
      EXPECT(unpacked(image_of(bad, text.size())) == text);
    } catch (const Error&) {
    }
  }
  auto cut = good;
  cut.pop_back();
  refused(image_of(cut, text.size()));
  refused(image_of(good, text.size() - 1));
  refused(image_of(good, text.size() + 1));
  const Image whole = image_of(good, text.size());
  const auto in_terms_of_other = frame(text, other);
  refused(image_of(in_terms_of_other, text.size(), &whole));
  refused(image_of(in_terms_of_other, text.size()));
}

}  // namespace
