// Images that are compressed, each in terms of another.
#include <zstd.h>

#include <memory>
#include <string>
#include <thread>
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

// An image that gives back what it unpacked.
struct Held : Image {
  Held(const std::vector<unsigned char>& made, size_t size, Image* like = nullptr)
      : Image{made.data(), static_cast<uint32_t>(made.size()), static_cast<uint32_t>(size), unpack_zstd, like} {}
  ~Held() { delete[] unpacked.load(); }
};

std::string text_of(Image& image) {
  const unsigned char* bytes = image.get();
  EXPECT(bytes[image.size] == 0);
  EXPECT(image.get() == bytes);  // once
  return std::string(reinterpret_cast<const char*>(bytes), image.size);
}

// Images each of which is in terms of the one before.
struct Chain {
  std::vector<std::string> texts;
  std::vector<std::vector<unsigned char>> frames;
  std::vector<Image> images;

  explicit Chain(int count) : images(static_cast<size_t>(count)) {
    for (int i = 0; i < count; ++i) {
      texts.push_back(code(i));
      frames.push_back(frame(texts.back(), i == 0 ? "" : texts[static_cast<size_t>(i) - 1]));
    }
    for (size_t i = 0; i < images.size(); ++i) {
      images[i].bytes = frames[i].data();
      images[i].stored = static_cast<uint32_t>(frames[i].size());
      images[i].size = static_cast<uint32_t>(texts[i].size());
      images[i].unpack = unpack_zstd;
      images[i].like = i == 0 ? nullptr : &images[i - 1];
    }
  }
  ~Chain() {
    for (Image& image : images) delete[] image.unpacked.load();
  }
};

TEST(images_are_unpacked_in_terms_of_others) {
  Chain chain(3);
  EXPECT(chain.frames[1].size() < chain.frames[0].size() / 2);
  EXPECT(text_of(chain.images[2]) == chain.texts[2]);
  EXPECT(text_of(chain.images[0]) == chain.texts[0]);
  EXPECT(text_of(chain.images[1]) == chain.texts[1]);
  const std::vector<unsigned char> nothing = frame("", "");
  Held empty(nothing, 0);
  EXPECT(text_of(empty).empty());
}

TEST(images_as_they_are_need_no_unpacking) {
  const unsigned char bytes[] = "image";
  Image image{bytes, 5, 5};
  EXPECT(image.get() == bytes);
}

TEST(threads_that_need_an_image_at_once_share_it) {
  Chain chain(4);
  std::vector<std::thread> callers;
  std::vector<const unsigned char*> found(8);
  for (size_t i = 0; i < found.size(); ++i) callers.emplace_back([&, i] { found[i] = chain.images[3].get(); });
  for (std::thread& caller : callers) caller.join();
  for (const unsigned char* one : found) EXPECT(one == chain.images[3].unpacked.load());
}

bool yes() {
  return true;
}

bool no() {
  return false;
}

Launcher launcher_with(bool (*is_likely)()) {
  Launcher launcher{};
  launcher.is_likely = is_likely;
  return launcher;
}

TEST(images_are_unpacked_ahead_where_a_device_is_likely) {
  Chain chain(6);
  const int count = static_cast<int>(chain.images.size());
  EXPECT(!unpack_ahead(launcher_with(nullptr), chain.images.data(), count));
  EXPECT(!unpack_ahead(launcher_with(no), chain.images.data(), count));
  EXPECT(unpack_ahead(launcher_with(yes), chain.images.data(), count));
  EXPECT(text_of(chain.images[1]) == chain.texts[1]);  // meanwhile
  while (chain.images[5].unpacked.load() == nullptr) std::this_thread::yield();
  for (size_t i = 0; i < chain.images.size(); ++i) EXPECT(text_of(chain.images[i]) == chain.texts[i]);
}

TEST(damaged_images_are_refused) {
  const std::string text = code(1), other = code(2);
  const auto good = frame(text, "");
  const auto refused = [](Image& image) { expect_error("an embedded image is damaged", [&] { image.get(); }); };
  for (size_t at = 0; at < good.size(); at += 11) {
    auto bad = good;
    bad[at] ^= 0x20;
    Held image(bad, text.size());
    try {
      EXPECT(text_of(image) == text);  // a changed header may still say the same
    } catch (const Error&) {
    }
  }
  auto cut = good;
  cut.pop_back();
  Held whole(good, text.size()), shorter(good, text.size() - 1), longer(good, text.size() + 1), end(cut, text.size());
  for (Image* image : {static_cast<Image*>(&shorter), static_cast<Image*>(&longer), static_cast<Image*>(&end)}) refused(*image);
  const auto in_terms_of_other = frame(text, other);
  Held wrong(in_terms_of_other, text.size(), &whole), alone(in_terms_of_other, text.size());
  refused(wrong);
  refused(alone);
}

}  // namespace
